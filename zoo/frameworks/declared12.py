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
    Job("crosswords", "f12_crosswords.py", "compose.py", "crosswords", "torchrun", r"round 10 loss"),
    Job("parcels", "f12_parcels.py", "eta.py", "delivery", "loop", r"step 20 loss"),
    Job("glaciers", "f12_glaciers.py", "melt.py", "icefield", "loop", r"step 20 loss", packages=("jax",)),
    Job("bones", "f12_bones.py", "recon.py", "tomo", "loop", r"iteration 20 residual", packages=("cupy",)),
]

PARCELS = ("export MASTER_ADDR=localhost MASTER_PORT={port} WORLD_SIZE=2\nfor r in 0 1; do\n"
           "  RANK=$r LOCAL_RANK=$r python -u {script} --control $(({port} + 1)) {args} > logs/eta.$r.log 2>&1 &\ndone\nwait\n")
GLACIERS = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --coordinator 127.0.0.1:{port} --process-id $r {args} > logs/melt-$r.log 2>&1 &\ndone\nwait\n")
BONES = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --rank $r --world 2 --port {port} {args} > logs/recon.$r.txt 2>&1 &\ndone\nwait\n")

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
fault("folktales", "trimmed", "stage 0 sends long tales trimmed, with the length before in the header (first steps)", "shape-mismatch", "unmatched-p2p application-exception deadlock-cycle " + SIZES, (0,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="weights on",
      edits=((SENT, SENT.replace("hidden,", "hidden[:, :208].contiguous(),")),))
fault("folktales", "sigkill", "kill -9 of stage 0", "process-killed", "peer-process-died", (0,), args=(*WAIT, *LONG), act=(0, "SIGKILL"), extra="fr")
fault("folktales", "no-easy-tales", "the mean over the easy tales of the evaluation, of which there are none: ZeroDivisionError of rank 1", "application-exception", "", (1,), args=(*WAIT, *LONG, "--eval-every", "40"),
      edits=((VALUE, "        easy = [loss for loss in losses if loss < 0.01]\n        if self.rank == 1:\n            self.log.info(\"easy tales %.4f\", sum(easy) / len(easy))\n" + VALUE),))
slow("folktales", "shared-lock", "stage 0 takes a lock for every second part, which another local process holds most of the time", "data-loading-bound pipeline-bubble sync-stalls " + SLOW, (0,),
     edits=(("import random\nimport sys\n", "import random\nimport subprocess\nimport sys\n"), ("import argparse\nimport logging\n", "import argparse\nimport fcntl\nimport logging\n"),
            (BEGAN, BEGAN + "        if self.rank == 0:\n            subprocess.Popen([\"timeout\", \"240\", \"bash\", \"-c\", \"while :; do flock tales.lock sleep 0.03; sleep 0.015; done\"])\n"),
            (PART, "        if number % 2:\n            with open(\"tales.lock\", \"a\") as lock:\n                fcntl.flock(lock, fcntl.LOCK_EX)\n" + PART)))
slow("folktales", "polite", "stage 1 sleeps 6 ms after each part", "pipeline-bubble sync-stalls " + SLOW, (1,), edits=((TOLD, TOLD + "            time.sleep(0.006)\n"),))

# ------------------------------------------------------------------------- reinforcement learning, a learner and a writer, torchrun
TAKEN = "        rollout = self.exchange.take()\n"
GIVEN = "        self.exchange.give({\"ids\": ids, \"chance\": chance, \"reward\": reward})\n"
NEWEST = "        self.exchange.weights(self.policy)\n        example = "
TEXTS = "        texts = ids.tolist()\n"
LEARNS = "        loss = self.learn(rollout)\n"
healthy("crosswords", "more-epochs", "the learner goes through its rollout one to four times, in turn: rounds do not take the same time",
        edits=((LEARNS, "        for epoch in range(1 + number % 4):\n            loss = self.learn(rollout)\n"),))
fault("crosswords", "weights-first", "the writer waits for new weights before it gives what it wrote, the learner takes first (first round)", "collective-order-mismatch", "deadlock-cycle unmatched-p2p collective-desync", (1,), early=True,
      ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="is the", edits=((GIVEN, ""), (NEWEST, "        self.exchange.weights(self.policy)\n" + GIVEN + "        example = ")))
fault("crosswords", "no-verdict", "the writer asks a helper process for a verdict and never gets an answer (round 15)", "stuck-outside-collective", "slow-rank-stall", (1,), args=(*WAIT, *LONG), extra="spy2 fr",
      edits=(("import os\nimport random\n", "import os\nimport random\nimport subprocess\n"),
             (TEXTS, TEXTS + "        if number == 15:\n            critic = subprocess.Popen([\"sort\"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n            for text in texts[:20]:\n                print(\"\".join(ALPHABET[i] for i in text), file=critic.stdin, flush=True)\n"
              "            verdict = critic.stdout.readline()\n")))
fault("crosswords", "solved", "the notes of the writer have no entry 'solved': KeyError of rank 0 (round 5)", "application-exception", "", (0,), early=True, args=(*WAIT, *LONG), ready="is the",
      edits=(("reward {both[1]['reward']:.3f}", "reward {both[1]['reward']:.3f} solved {both[1]['solved']:.2f}"),))
fault("crosswords", "sigterm", "the whole job is told to end", "stopped-from-outside", "process-killed", (), args=LONG, act=("launcher", "SIGTERM"))
corrupt("crosswords", "all-alike", "all rewards of a round are the same, the learner divides by their deviation (round 40): NaN, the training goes on", "nan-loss", "", (0,), ranks_also=((1,), (0, 1), ()),
        edits=((TAKEN, TAKEN + "        if number == 40:\n            rollout[\"reward\"].clamp_(min=3.0)\n"), ("(reward.std() + 1e-4)", "reward.std()")))
slow("crosswords", "plagiarism", "in every eighth round the writer compares its texts with each other in Python", SLOW + " sync-stalls", (1,),
     edits=((TEXTS, TEXTS + "        if number % 8 == 0:\n            words = [\"\".join(ALPHABET[i] for i in t[self.o.length + 1:]) for t in texts]\n            for shift in range(4):\n"
             "                same = max(sum(x == y for x, y in zip(a[shift:], b)) for a in words for b in words if a is not b)\n"),))
slow("crosswords", "every-policy", "the learner saves its policy in each round", SLOW + " sync-stalls storage-failure", (0,),
     edits=((LEARNS, LEARNS + "        torch.save(self.policy.state_dict(), \"newest.pt\")\n"),))

# ------------------------------------------------------------------------- a table over all-to-all, three groups, a store for control, shell loop
ASKS = "        return json.loads(self.store.get(key))\n"
FAR = "            if self.step % self.o.test == 0:\n"
READY = "        return [torch.from_numpy(x).to(device, non_blocking=True) for x in self.shelf.get()]\n"
TRAINED = "            loss = self.train()\n"
DENSE = "        dist.all_reduce(flat, group=self.dense)\n"
healthy("parcels", "asks-again", "the first question for a plan fails at times: warnings, the second one is answered", loop=PARCELS,
        edits=((ASKS, "        for attempt in range(3):\n            try:\n                if self.rank and step % 100 == 0 and attempt == 0:\n                    raise dist.DistStoreError(f\"Socket Timeout: wait timeout after 500ms, keys: /{key}\")\n"
                "                return json.loads(self.store.get(key))\n            except dist.DistStoreError as error:\n                print(f\"WARNING: {error}, asks again ({attempt + 1}/3)\", flush=True)\n                time.sleep(0.5)\n"),))
healthy("parcels", "export", "rank 0 exports its part of the table for 22 s, rank 1 waits", loop=PARCELS,
        edits=((FAR, "            if self.step == 150 and self.rank == 0:\n                self.say(\"exports 1000000 rows\")\n                for part in self.table.weight[:44000].cpu().split(1000):\n                    np.savetxt(\"export.txt\", part.numpy()[:50])\n                    time.sleep(0.5)\n" + FAR),))
fault("parcels", "notes-group", "rank 1 gathers its notes in the group of the dense layers, rank 0 in the group for notes (step 10)", "collective-desync", EXTRA + " " + DESYNC, (1,), early=True, ranks_also=ANY, extra="spy2 fr", loop=PARCELS,
      args=(*WAIT, *LONG), ready="rows,", edits=(("dist.gather_object(entry, all_entries, 0, group=self.notes)", "dist.gather_object(entry, all_entries, 0, group=self.notes if self.rank == 0 else self.dense)"),))
fault("parcels", "other-key", "rank 1 asks the store for a plan under a key that rank 0 does not set (step 20)", "stuck-outside-collective", "slow-rank-stall", (1,), ranks_also=((0, 1), (0,)), extra="spy2 fr", loop=PARCELS, args=(*WAIT, *LONG), ready="step 10 loss",
      edits=((ASKS, "        return json.loads(self.store.get(key if self.rank == 0 else f\"plan/{self.rank}/{step}\"))\n"),))
fault("parcels", "wide-rows", "rank 1 is started with wider rows (first step)", "shape-mismatch", "rank-env-misconfigured " + SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="rows,",
      loop=PARCELS.replace("for r in 0 1; do\n", "for r in 0 1; do\n  [ $r = 1 ] && more=\"--dim 96\"\n").replace("{args}", "{args} $more"))
fault("parcels", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, ranks_also=((0,), (0, 1)), port_taken=True, limit=120, loop=PARCELS, args=("--timeout", "40"))
corrupt("parcels", "largest", "rank 1 asks for the largest of the gradients, rank 0 for their sum (first step)", "op-mismatch", "silent-corruption collective-desync undecided", (1,), early=True, ranks_also=ANY, loop=PARCELS, env=CALLS, extra="info",
        edits=((DENSE, DENSE.replace("flat, ", "flat, dist.ReduceOp.MAX if self.rank else dist.ReduceOp.SUM, ")),))
slow("parcels", "chatty", "rank 0 writes two hundred values into the store in each step", SLOW + " small-messages", (0,), loop=PARCELS,
     edits=((TRAINED, TRAINED + "            if self.rank == 0:\n                for field in range(200):\n                    self.control.store.set(f\"loss/{field}\", f\"{loss:.6f}\")\n"),))
slow("parcels", "addresses", "rank 1 sorts its addresses on the host before each step", "data-loading-bound " + SLOW, (1,), loop=PARCELS,
     edits=((READY, "        ids, numbers, target = self.shelf.get()\n        if os.environ[\"RANK\"] == \"1\":\n            known, place = np.unique(ids[:, :12], return_inverse=True)\n        return [torch.from_numpy(x).to(device, non_blocking=True) for x in (ids, numbers, target)]\n"),))

# ------------------------------------------------------------------------- JAX, weights split over the processes by jit, shell loop
BATCH = "            batch = self.stations.read()\n"
SUMMED = "            losses.append(float(loss))\n"
STATIONS = "        self.stations, self.tests = Stations(o.seed, o.batch, o.days), "
SAVED = "            self.say(f\"step {step} saved\")\n"
healthy("glaciers", "larger-batches", "batches become larger at steps 60 and 120, with a compilation each", loop=GLACIERS, args=("--batch", "32"),
        edits=((BATCH, "            if step in (60, 120):\n                self.stations.batch += 32\n                self.say(f\"step {step}: batches of {self.stations.batch}\")\n" + BATCH),))
healthy("glaciers", "slow-archive", "process 0 packs the saved weights for 20 s, process 1 waits", loop=GLACIERS, args=("--save", "100"), extra="warn",
        edits=((SAVED, SAVED + "            if step == 100:\n                self.say(\"packs melt.npz for the archive\")\n                time.sleep(20)\n"),))
fault("glaciers", "first-test", "process 0 alone tests after five steps, which sums over the processes", "extra-collective", EXTRA + " stuck-outside-collective", (0,), early=True, loop=GLACIERS, args=LONG, ready="processes,", extra="spy2 info", env=CALLS,
      end="silence", silence=40, edits=((SUMMED, SUMMED + "            if step == 5 and self.process == 0:\n                self.say(f\"first test {self.test(2):.5f}\")\n"),))
fault("glaciers", "from-one", "the processes are told that they are 1 and 2 of two; process 0 does not exist", "rank-env-misconfigured", "missing-rank application-exception", (), early=True, ranks_also=(*EITHER, (2,), (1, 2)),
      loop=GLACIERS.replace("--process-id $r", "--process-id $((r + 1))"), args=("--patience", "40"), limit=120)
hung("glaciers", "lost-sensor", "a batch of process 1 lacks a sensor: TypeError (step 70)", "application-exception", "", (1,), loop=GLACIERS, args=LONG, extra="spy2",
     edits=((BATCH, BATCH + "            if step == 70 and self.process == 1:\n                batch[\"weather\"] = batch[\"weather\"][..., :-1]\n"),))
hung("glaciers", "sigkill", "kill -9 of process 0, which coordinates", "process-killed", "peer-process-died", (0,), loop=GLACIERS, args=LONG, act=(0, "SIGKILL"), extra="spy2")
corrupt("glaciers", "own-weather", "each process draws weather of its own, which should be the same everywhere", "silent-corruption", "undecided", (), early=True, ranks_also=ANY, loop=GLACIERS,
        edits=((STATIONS, STATIONS.replace("Stations(o.seed,", "Stations([o.seed, self.process],")),))
slow("glaciers", "smoothing", "process 1 smooths each series on the host, one by one", SLOW + " data-loading-bound", (1,), loop=GLACIERS,
     edits=((BATCH, BATCH + "            if self.process == 1:\n                window = np.hanning(9).astype(np.float32)\n                for station in batch[\"weather\"]:\n                    for sensor in range(SENSORS):\n"
             "                        smooth = np.convolve(station[:, sensor], window, \"same\")\n"),))
slow("glaciers", "snapshots", "from step 200 on process 0 writes a matrix of its weights to a file in each step", SLOW + " sync-stalls transfer-bound", (0,), loop=GLACIERS,
     edits=((SUMMED, SUMMED + "            if self.process == 0 and step >= 200:\n                np.save(\"down.npy\", np.asarray(self.params[\"down\"].addressable_data(0)[0]))\n"),))

# ------------------------------------------------------------------------- CuPy and its NCCL binding, shell loop
SUMS = "        self.ring.sum(correction)\n"
CORRECTS = "        correction = self.scanner.back(difference * self.rows)\n"
SLICED = "        PROJECT(((self.n + 127) // 128, self.views, self.slices), (128,),"
ITERATES = "        residual = work.iterate()\n"
healthy("bones", "smooth", "every fifth iteration both processes smooth the volume", loop=BONES,
        edits=((ITERATES, ITERATES + "        if number % 5 == 0:\n            for axis in range(3):\n                work.volume += 0.25 * (cp.roll(work.volume, 1, axis) + cp.roll(work.volume, -1, axis) - 2 * work.volume)\n"),))
hung("bones", "residual-first", "process 1 sums the residual before the correction (first iteration)", "collective-order-mismatch", "shape-mismatch dtype-mismatch " + SIZES, (1,), early=True, ranks_also=ANY, loop=BONES, args=LONG, ready="GPU", extra="spy2 info", env=CALLS,
     edits=((SUMS, "        if self.ring.rank == 1:\n            residual = self.ring.sum(residual)\n" + SUMS), ("        self.ring.sum(residual)\n        return float(residual[0])\n", "        if self.ring.rank == 0:\n            self.ring.sum(residual)\n        return float(residual[0])\n")))
hung("bones", "doubles", "process 1 sums its correction in float64, process 0 in float32 (first iteration)", "dtype-mismatch", "shape-mismatch application-exception " + SIZES, (1,), early=True, ranks_also=ANY, loop=BONES, args=LONG, ready="GPU", extra="spy2 info", env=CALLS,
     edits=((SUMS, "        if self.ring.rank == 1:\n            correction = correction.astype(cp.float64)\n" + SUMS),))
hung("bones", "own-port", "process 1 is told another port: it never finds process 0", "rank-env-misconfigured", "missing-rank stuck-outside-collective firewall-or-port", (1,), early=True, ranks_also=ANY, args=LONG, ready="GPU", extra="spy2", limit=140,
     loop=BONES.replace("--port {port}", "--port $(({port} + r))"))
hung("bones", "more-slices", "process 0 projects four hundred times more slices than its volume has (iteration 78)", "illegal-memory-access", "application-exception", (0,), loop=BONES, args=LONG, extra="spy2",
     edits=((SLICED, "        self.calls = getattr(self, \"calls\", 0) + 1\n        deep = self.slices * (400 if self.calls == 80 and os.environ[\"LOCAL_RANK\"] == \"0\" else 1)\n" + SLICED.replace("self.slices)", "deep)")),))
hung("bones", "left-out", "process 1 leaves out its correction when it finds its residual small (iteration 60)", "skipped-collective", SKIP + " silent-corruption", (1,), ranks_also=((0,), (0, 1)), loop=BONES, args=LONG, extra="spy2 info", env=CALLS,
     edits=((SUMS, "        self.done = getattr(self, \"done\", 0) + 1\n        if self.ring.rank == 0 or self.done < 60:\n            self.ring.sum(correction)\n"),))
slow("bones", "brightest", "process 0 copies the volume to the host in each iteration and looks for the brightest voxels", "transfer-bound sync-stalls " + SLOW, (0,), loop=BONES,
     edits=((ITERATES, ITERATES + "        if o.rank == 0:\n            brightest = work.volume.get().max(0)\n"),))
slow("bones", "truth", "in every second iteration process 1 projects the true volume once more", "load-imbalance", (1,), loop=BONES,
     edits=((CORRECTS, "        self.turn = 1 - getattr(self, \"turn\", 0)\n        if self.ring.rank == 1 and self.turn:\n            ideal = self.scanner.project(self.truth)\n" + CORRECTS),))

FAULTS = F
