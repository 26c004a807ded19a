"""A twelfth set of jobs and faults: two ranks each, on two GPUs. The same plain data as declared.py. All jobs end by themselves after --minutes.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch collective-order-mismatch"
SKIP = DESYNC + " shape-mismatch dtype-mismatch collective-order-mismatch uneven-inputs"
SIZES = "collective-desync silent-corruption op-mismatch"
SLOW = "host-bound load-imbalance"
EITHER = ((0,), (1,), (0, 1))
ANY = ((0,), (1,), (0, 1), ())


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"limit": 160, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 40, **more})


def healthy(job, name, says, extra="", **more):
    fault(job, "healthy-" + name, says, "none", extra=extra, **{"limit": 210, **more})


def slow(job, name, says, also="", ranks=(), **more):
    fault(job, name, says + "; the job runs on", "straggler", also, ranks, category="performance", **{"limit": 200, **more})


def corrupt(job, name, says, cause, also="", ranks=(), **more):
    """Nothing stops: the numbers are wrong."""
    fault(job, name, says, cause, also, ranks, category="corruption", **{"limit": 200, **more})


JOBS = [
    Job("vineyard", "f12_vineyard.py", "count_grapes.py", "vines", "torchrun", r"iter 20 loss"),
    Job("sleep", "f12_sleep.py", "stage_sleep.py", "sleeplab", "python", r"batch 20 loss", packages=("lightning", "torch")),
    Job("patents", "f12_patents.py", "write_titles.py", "patents", "torchrun", r"step 20 loss", packages=("transformers", "accelerate", "torch")),
    Job("crops", "f12_crops.py", "phenology.py", "fields", "torchrun", r"step 20 loss"),
    Job("folktales", "f12_folktales.py", "tell.py", "tales", "torchrun", r"step 20 loss"),
]

WAIT = ("--timeout", "30")
LONG = ("--minutes", "20")
CALLS = (("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),)

# ------------------------------------------------------------------------- density maps with a U-Net, DDP with a hook, torchrun
READS = "        photo = self.leaves[i % 12].copy()\n"
LOSS = "        loss = criterion(predicted, density)\n"
AHEAD = "        self.meter, self.iteration, self.best, self.began = Meter(), 0, math.inf, time.time()\n"
KEPT = "                            csv.writer(file).writerow([self.iteration, error, count])\n"
STARTS = "    def train_step(self, batch):\n"
healthy("vineyard", "pictures", "rank 0 writes pictures for 24 s after the first validation, rank 1 waits",
        edits=((KEPT, KEPT + "                        if self.best == math.inf:\n                            self.info(\"writes 300 pictures\")\n                            for number in range(300):\n"
                "                                np.save(\"picture.npy\", self.val_loader.dataset[number][1].numpy())\n                                time.sleep(0.08)\n"),))
healthy("vineyard", "part-batches", "batches have a third, two thirds or all of their photos, in turn and for both ranks", extra="info",
        edits=((STARTS, STARTS + "        batch = [x[:len(x) * (1 + self.iteration % 3) // 3] for x in batch]\n"),))
fault("vineyard", "no-grapes", "rank 1 leaves the step early because its photos show no grapes (iteration 3)", "skipped-collective", SKIP + " silent-corruption", (1,), early=True, ranks_also=((0,), (0, 1)), extra="fr",
      args=(*WAIT, *LONG), ready="weights,", edits=((STARTS, STARTS + "        if self.iteration == 2 and self.rank == 1:\n            print(f\"rank {self.rank}: no grapes, next\", flush=True)\n            return\n"),))
corrupt("vineyard", "bare-model", "both ranks call the model without DDP: gradients are not averaged, every rank has its own weights", "silent-corruption", "undecided", (), early=True, ranks_also=ANY,
        edits=(("            predicted = self.ddp(photos)\n", "            predicted = self.model(photos)\n"),
               ("                    mean, = self.average(self.meter.mean)\n", "                    mean, = self.average(self.meter.mean)\n                    print(f\"rank {self.rank} iter {self.iteration} sum of weights {sum(w.detach().double().sum().item() for w in self.model.parameters()):.6f}\", flush=True)\n")))
fault("vineyard", "margin", "a density map of rank 0 lacks its margin: RuntimeError in the loss (iteration 70)", "application-exception", "", (0,), args=(*WAIT, *LONG),
      edits=((LOSS, "        if self.rank == 0 and self.iteration == 69:\n            density = density[:, 6:-6, 6:-6]\n" + LOSS),))
hung("vineyard", "held-lock", "the data-loader workers of rank 1 wait for a file lock that their own rank holds", "stuck-outside-collective", "data-loading-bound slow-rank-stall", (1,), args=LONG, ready="weights,", extra="spy2",
     edits=(("import datetime\nimport math\n", "import datetime\nimport fcntl\nimport math\n"),
            (AHEAD, AHEAD + "        if self.rank == 1:\n            self.index = open(\"photos.lock\", \"w\")\n            fcntl.flock(self.index, fcntl.LOCK_EX)\n"),
            (READS, "        if i % 900 == 7 and os.environ[\"RANK\"] == \"1\":\n            with open(\"photos.lock\", \"w\") as lock:\n                fcntl.flock(lock, fcntl.LOCK_EX)\n" + READS)))
fault("vineyard", "sigsegv", "SIGSEGV of rank 0", "process-crashed", "process-killed peer-process-died", (0,), args=(*WAIT, *LONG), act=(0, "SIGSEGV"), extra="fr")
slow("vineyard", "previews", "from iteration 150 on rank 0 writes two density maps as text in each step", SLOW + " sync-stalls", (0,),
     edits=((LOSS, LOSS + "        if self.rank == 0 and self.iteration >= 150:\n            for number in range(2):\n                np.savetxt(f\"preview-{number}.txt\", predicted[number].detach().cpu().numpy(), fmt=\"%.4f\")\n"),))
slow("vineyard", "one-core", "rank 1 and its data-loader workers have one core, together with a busy process", "data-loading-bound " + SLOW, (1,),
     edits=(("import os\nimport time\n", "import os\nimport subprocess\nimport time\n"),
            ("        torch.manual_seed(args.seed)\n", "        torch.manual_seed(args.seed)\n        if self.rank == 1:\n            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\n"
             "            subprocess.Popen([\"timeout\", \"240\", \"yes\"], stdout=subprocess.DEVNULL)\n")))

# ------------------------------------------------------------------------- Lightning, manual optimization, starts its own ranks
SCORED = "        loss = F.cross_entropy(self(signal).float().flatten(0, 1), stages.flatten())\n"
BACK = "        for optimizer in optimizers:\n            optimizer.zero_grad()\n"
NIGHT = "        stages = self.hypnogram(rng)\n"
SETUP = "    def setup(self, stage):\n"
# The second rank starts late: the first one starts it, and it must be there within this time.
WAIT_SLEEP = ("--timeout", "50")
healthy("sleep", "unpacks", "rank 1 unpacks its recordings for 26 s before the first step, rank 0 waits",
        edits=((SETUP, SETUP + "        if self.trainer.global_rank == 1:\n            print(\"unpacks recordings\", flush=True)\n            time.sleep(26)\n"),))
healthy("sleep", "bad-blocks", "a recording cannot be read at first: tracebacks, other tries succeed",
        edits=(("import datetime\nimport time\n", "import datetime\nimport time\nimport traceback\n"),
               (NIGHT, "        for attempt in range(3):\n            try:\n                if i % 2500 == 3 and attempt < 2:\n                    raise OSError(121, \"Remote I/O error\", f\"/nfs/edf/{i:06d}.edf\")\n                break\n"
                "            except OSError:\n                traceback.print_exc()\n                print(f\"attempt {attempt + 1} of 3, tries again\", flush=True)\n                time.sleep(0.05)\n" + NIGHT)))
fault("sleep", "own-log", "rank 0 alone logs a loss with sync_dist (first batch)", "extra-collective", EXTRA, (0,), early=True, extra="fr", args=(*WAIT_SLEEP, *LONG), ready="starts on", limit=170,
      edits=((SCORED, SCORED + "        if self.global_rank == 0 and batch_idx % 5 == 0:\n            self.log(\"loss_all\", loss.detach(), sync_dist=True)\n"),))
fault("sleep", "restless", "rank 1 leaves out the backward pass of a restless night (batch 60)", "skipped-collective", SKIP + " silent-corruption", (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT_SLEEP, *LONG), limit=170,
      edits=((SCORED, SCORED + "        if self.global_rank == 1 and batch_idx == 60:\n            self.latest = loss.item()\n            return loss\n"),))
fault("sleep", "movement", "a night of rank 0 has the stage 'movement', which the model does not know (batch 90)", "device-assert", "application-exception", (0,), args=(*WAIT_SLEEP, *LONG), limit=170,
      edits=((SCORED, "        if self.global_rank == 0 and batch_idx == 90:\n            stages[2, 7] = len(STAGES)\n" + SCORED),))
hung("sleep", "debugger", "rank 0 stops in the debugger (batch 50)", "stuck-outside-collective", "process-stopped slow-rank-stall", (0,), stdin="pipe", extra="spy2", args=LONG, limit=170,
     edits=((SCORED, SCORED + "        if self.global_rank == 0 and batch_idx == 50:\n            breakpoint()\n"),))
fault("sleep", "read-only", "the folder of the checkpoints is on a read-only file system (first checkpoint)", "storage-failure", "application-exception", (0,), ranks_also=((0, 1),), tmpfs=(("nights", "8m,ro"),),
      args=(*WAIT_SLEEP, *LONG, "--save-every", "60"), limit=170)
fault("sleep", "sigabrt", "SIGABRT of rank 1", "process-crashed", "process-killed peer-process-died", (1,), args=(*WAIT_SLEEP, *LONG), act=(1, "SIGABRT"), extra="fr", limit=170)
slow("sleep", "bands", "in every twelfth batch rank 1 filters its nights on the host, for twelve bands", SLOW + " data-loading-bound sync-stalls", (1,),
     edits=((SCORED, "        if self.global_rank == 1 and batch_idx % 12 == 0:\n            night = signal.cpu().numpy()\n            for band in range(12):\n                waves = np.fft.rfft(night)\n                waves[..., :100 * band] = 0\n"
             "                waves[..., 100 * band + 300:] = 0\n                power = np.fft.irfft(waves).std(-1)\n" + SCORED),))
slow("sleep", "stability", "rank 0 reads each night a second time with noise, without gradients", "load-imbalance", (0,),
     edits=((BACK, "        if self.global_rank == 0:\n            with torch.no_grad():\n                self.stable = (self(signal + 0.1 * torch.randn_like(signal)).argmax(-1) == stages).float().mean().item()\n" + BACK),))

# ------------------------------------------------------------------------- T5 with the Trainer of transformers, torchrun
COMPUTED = "        labels = inputs[\"labels\"]\n"
LOGGED = "        if state.is_world_process_zero and \"loss\" in logs:\n"
ENDED = "        if state.global_step % 20 == 0:\n"
ANSWERED = "        logits = outputs.logits.float()\n"
SEEDED = "    set_seed(41)\n"
WAIT_PATENTS = ("--ddp_timeout", "30")
healthy("patents", "long-evaluation", "each evaluation takes longer than the training between two of them", args=("--eval_patents", "40000", "--eval_steps", "150"))
healthy("patents", "dashboard", "the dashboard does not answer at times: tracebacks and other tries",
        edits=(("import time\n\nimport numpy", "import time\nimport traceback\n\nimport numpy"),
               (LOGGED, "        if state.is_world_process_zero and state.global_step % 60 == 0:\n            try:\n                raise TimeoutError(\"dashboard.local:8443: the read operation timed out\")\n            except TimeoutError:\n"
                "                traceback.print_exc()\n                print(\"WARNING: dashboard: 1 failed, retrying in 2 seconds\", flush=True)\n                time.sleep(2)\n" + LOGGED)))
fault("patents", "main-barrier", "a barrier for the main process alone, in a callback (step 4)", "extra-collective", EXTRA, (0,), early=True, extra="fr", args=(*WAIT_PATENTS, *LONG), ready="parameters",
      edits=((ENDED, "        if state.is_world_process_zero and state.global_step == 4:\n            with open(\"started\", \"w\") as file:\n                file.write(str(self.began))\n            dist.barrier()\n" + ENDED),))
fault("patents", "all-words", "rank 1 compares all words of a batch with each other: no memory (step 40)", "cuda-oom", "application-exception", (1,), args=("--ddp_timeout", "60", *LONG),
      edits=((ANSWERED, ANSWERED + "        if self.state.global_step == 40 and self.args.process_index == 1:\n            words = outputs.encoder_last_hidden_state.float().flatten(0, 1)\n            alike = (words[:, None] - words[None]).abs().mean(-1)\n"),))
fault("patents", "enough", "rank 1 has seen enough words and leaves with code 0 (step 50)", "rank-exited-early", "skipped-collective uneven-inputs", (1,), extra="fr", args=(*WAIT_PATENTS, *LONG),
      edits=(("import random\nimport time\n", "import random\nimport sys\nimport time\n"),
             (ENDED, "        if args.process_index == 1 and state.global_step * args.per_device_train_batch_size >= 1600:\n            print(\"1600 patents are enough\", flush=True)\n            sys.exit(0)\n" + ENDED)))
hung("patents", "no-receipt", "rank 0 waits for a receipt that nothing puts into the queue (step 45)", "stuck-outside-collective", "slow-rank-stall", (0,), args=LONG, extra="spy2",
     edits=(("import os\nimport random\n", "import os\nimport queue\nimport random\n"),
            ("        self.minutes, self.began = minutes, None\n", "        self.minutes, self.began, self.receipts = minutes, None, queue.Queue()\n"),
            (ENDED, "        if state.is_world_process_zero and state.global_step == 45:\n            self.receipts.get()\n" + ENDED)))
hung("patents", "slurm-ids", "the rank comes from SLURM_PROCID, which is 0 for both processes (before the first step)", "rank-env-misconfigured", "missing-rank launcher-failure", (), early=True, ranks_also=EITHER, args=LONG, ready="parameters", extra="spy2 info",
     env=(("SLURM_PROCID", "0"),), edits=((SEEDED, "    os.environ[\"RANK\"] = os.environ.get(\"SLURM_PROCID\", os.environ[\"RANK\"])\n" + SEEDED),))
corrupt("patents", "no-titles", "no patent of a batch of rank 1 has a title (step 80): the mean over no words is NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((0, 1), ()),
        edits=((COMPUTED, COMPUTED + "        if self.state.global_step == 80 and self.args.process_index == 1 and model.training:\n            labels = torch.full_like(labels, -100)\n"),))
slow("patents", "phrases", "rank 0 counts phrases of the abstracts in Python in each step", SLOW + " sync-stalls", (0,),
     edits=(("import time\n\nimport numpy", "import time\nfrom collections import Counter\n\nimport numpy"),
            (COMPUTED, COMPUTED + "        if self.args.process_index == 0 and model.training:\n            for row in inputs[\"input_ids\"].tolist():\n                for n in range(1, 17):\n                    common = Counter(zip(*(row[i:] for i in range(n)))).most_common(1)\n")))
slow("patents", "limited", "a helper holds rank 1 back with SIGSTOP and SIGCONT, to about two thirds of a processor", "process-stopped " + SLOW, (1,),
     edits=(("import random\nimport time\n", "import random\nimport subprocess\nimport time\n"),
            (SEEDED, SEEDED + "    if os.environ[\"RANK\"] == \"1\":\n        subprocess.Popen([\"bash\", \"-c\", f\"sleep 20; while kill -CONT {os.getpid()} 2> /dev/null; do sleep 0.05; kill -STOP {os.getpid()}; sleep 0.025; done\"])\n")))

# ------------------------------------------------------------------------- FSDP2, checkpoints in the background, torchrun
TOOK = "        readings, clouds, crop = (x.to(device, non_blocking=True) for x in (readings, clouds, crop))\n"
UPDATED = "        optimizer.step()\n"
TESTED = "                worst = min(range(len(CROPS)), key=shares.__getitem__)\n"
SHARDED = "    model = shard(SeasonNet(args.dim, args.depth, args.heads, args.hidden).to(device), mesh)\n"
LOADER = "    loader = DataLoader(Pixels(rank, args.batch), None, num_workers=args.workers, pin_memory=cuda)\n"
DRAW = "        crop = rng.integers(len(CROPS), size=self.batch)\n"
healthy("crops", "map", "rank 0 draws a map for 22 s after the first test, rank 1 waits",
        edits=((TESTED, TESTED + "                if step == args.test:\n                    print(\"draws a map of the region\", flush=True)\n                    time.sleep(22)\n"),))
healthy("crops", "often-saves", "a checkpoint is begun every 60 steps, and the one before waited for: steps take different times", args=("--save", "60"))
fault("crops", "main-export", "rank 0 alone asks for the whole model (step 4)", "extra-collective", EXTRA, (0,), early=True, extra="fr", args=(*WAIT, *LONG), ready="weights on",
      edits=((TOOK, "        if step == 4 and rank == 0:\n            whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n            torch.save(whole, \"first.pt\")\n" + TOOK),))
fault("crops", "disk-full", "the file system of the checkpoints is full; the writing fails in the background", "storage-failure", "application-exception", (), ranks_also=EITHER, tmpfs=(("run", "40m"),), args=(*WAIT, *LONG, "--save", "50"))
fault("crops", "small-region", "the region of rank 1 has fewer batches", "uneven-inputs", UNEVEN, (1,), extra="fr", args=(*WAIT, *LONG),
      edits=((LOADER, LOADER.replace("Pixels(rank, args.batch)", "Pixels(rank, args.batch, (None, 35)[rank])")),))
fault("crops", "wider", "rank 1 makes its layers wider than rank 0 (first step)", "shape-mismatch", "rank-env-misconfigured " + SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="weights on",
      edits=((SHARDED, SHARDED.replace("args.hidden)", "args.hidden + 256 * rank)")),))
hung("crops", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=LONG, act=(1, "SIGSTOP"), extra="stacks ps")
fault("crops", "eleventh-crop", "a data-loader worker of rank 0 meets a crop without colour: IndexError (batch 30 of a worker)", "application-exception", "", (0,), args=(*WAIT, *LONG),
      edits=((DRAW, DRAW + "        self.drawn = getattr(self, \"drawn\", 0) + 1\n        if self.region == 0 and self.drawn == 30:\n            crop[5] = len(CROPS)\n"),))
slow("crops", "copies", "rank 1 copies its weights to the host in each step", "transfer-bound sync-stalls " + SLOW, (1,),
     edits=((UPDATED, UPDATED + "        if rank == 1:\n            newest = [p.to_local().cpu() for p in model.parameters()]\n"),))
slow("crops", "lags", "from step 200 on rank 0 correlates its readings with themselves on the GPU, six lags in each step", "load-imbalance", (0,),
     edits=((TOOK, TOOK + "        if rank == 0 and step >= 200:\n            series = readings.transpose(1, 2).flatten(0, 1).repeat(4, 12)\n            likeness = [torch.corrcoef(series.roll(lag, 1)).amax() for lag in range(6)]\n"),))

# ------------------------------------------------------------------------- two stages, send and recv with headers, torchrun
SENT = "        dist.send(hidden, self.peer)\n"
EMPTY = "        hidden = torch.empty(rows, length, self.dim, dtype=torch.bfloat16, device=self.device)\n"
BEGAN = "        began, step = time.time(), 0\n"
BACKWARD = "            number, ids, hidden = waiting.pop(0)\n"
PART = "        ids = tales.batch(self.o.rows, self.o.longest).to(self.device)\n"
VALUE = "        return sum(losses) / max(1, len(losses))\n"
TOLD = "            total += loss.item()\n"
healthy("folktales", "parts", "batches have two to six parts, both stages know how many", extra="info", edits=(("        return self.o.parts\n", "        return 2 + step * 7 % (self.o.parts - 1)\n"),))
healthy("folktales", "reads", "stage 0 reads the tales for 25 s before the first step, stage 1 waits",
        edits=((BEGAN, BEGAN + "        if self.rank == 0:\n            self.log.info(\"reads 180000 tales\")\n            time.sleep(25)\n"),))
fault("folktales", "greetings", "both stages wait for a greeting before they send theirs (before the first step)", "deadlock-cycle", "unmatched-p2p collective-order-mismatch", (0, 1), early=True, ranks_also=((0,), (1,), ()), extra="fr",
      args=(*WAIT, *LONG), ready="weights on",
      edits=((BEGAN, "        version = torch.zeros(1, device=self.device)\n        dist.recv(version, self.link.peer)\n        dist.send(torch.ones(1, device=self.device), self.link.peer)\n        if version.item() != 1:\n            raise RuntimeError(\"the other stage has another version\")\n" + BEGAN),))
fault("folktales", "no-words", "stage 1 leaves out a part without words, and does not send its gradient (step 50)", "unmatched-p2p", "skipped-collective deadlock-cycle collective-desync", (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((BACKWARD, BACKWARD + "            if step == 50 and number == 3:\n                self.log.warning(\"part %d has no words, left out\", number)\n                continue\n"),))
fault("folktales", "trimmed", "stage 0 sends long tales trimmed, with the length before in the header (first steps)", "shape-mismatch", "unmatched-p2p " + SIZES, (0,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="weights on",
      edits=((SENT, SENT.replace("hidden,", "hidden[:, :208].contiguous(),")),))
fault("folktales", "whole-floats", "stage 1 expects float32, stage 0 sends bfloat16 (first step)", "dtype-mismatch", "shape-mismatch unmatched-p2p " + SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="weights on",
      edits=((EMPTY, EMPTY.replace("torch.bfloat16", "torch.float32")),))
fault("folktales", "sigkill", "kill -9 of stage 0", "process-killed", "peer-process-died", (0,), args=(*WAIT, *LONG), act=(0, "SIGKILL"), extra="fr")
fault("folktales", "no-easy-tales", "the mean over the easy tales of the evaluation, of which there are none: ZeroDivisionError of rank 1", "application-exception", "", (1,), args=(*WAIT, *LONG, "--eval-every", "40"),
      edits=((VALUE, "        easy = [loss for loss in losses if loss < 0.01]\n        if self.rank == 1:\n            self.log.info(\"easy tales %.4f\", sum(easy) / len(easy))\n" + VALUE),))
slow("folktales", "shared-lock", "stage 0 takes a lock for every second part, which another local process holds most of the time", "data-loading-bound pipeline-bubble sync-stalls " + SLOW, (0,),
     edits=(("import random\nimport sys\n", "import random\nimport subprocess\nimport sys\n"), ("import argparse\nimport logging\n", "import argparse\nimport fcntl\nimport logging\n"),
            (BEGAN, BEGAN + "        if self.rank == 0:\n            subprocess.Popen([\"timeout\", \"240\", \"bash\", \"-c\", \"while :; do flock tales.lock sleep 0.03; sleep 0.015; done\"])\n"),
            (PART, "        if number % 2:\n            with open(\"tales.lock\", \"a\") as lock:\n                fcntl.flock(lock, fcntl.LOCK_EX)\n" + PART)))
slow("folktales", "polite", "stage 1 sleeps 6 ms after each part", "pipeline-bubble sync-stalls " + SLOW, (1,), edits=((TOLD, TOLD + "            time.sleep(0.006)\n"),))

FAULTS = F
