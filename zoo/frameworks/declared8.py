"""An eighth set of jobs and faults: two ranks each, on two GPUs or sharing one (run.py --share 1). The same plain data as declared.py.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch collective-order-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
LEFT = UNEVEN + " uneven-inputs"
QUIT = "rank-exited-early process-crashed peer-process-died"
EITHER = ((0,), (1,), (0, 1))
ANY = ((0,), (1,), (0, 1), ())


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"limit": 115, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 40, **more})


JOBS = [
    Job("tickets", "f8_tickets.py", "sft_tickets.py", "helpdesk", "accelerate", r"step 10 loss", packages=("accelerate", "transformers", "torch")),
    Job("bearings", "f8_bearings.py", "train_bearings.py", "bearings", "torchrun", r"update 10 loss"),
    Job("melodies", "f8_melodies.py", "pretrain_music.py", "melodies", "torchrun", r"step 20/", flags=("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{port}")),
    Job("coral", "f8_coral.py", "fit_coral.py", "reef", "torchrun", r"epoch 0 batch 20/", packages=("lightning", "torch")),
    Job("dialects", "f8_dialects.py", "pipe_dialects.py", "dialects", "torchrun", r"batch 10 loss"),
    Job("quests", "f8_quests.py", "serve_quests.py", "quests", "torchrun", r"request 10:"),
    Job("demand", "f8_demand.py", "forecast.py", "shops", "loop", r"step 20 error", packages=("jax",)),
    Job("friends", "f8_friends.py", "embed_graph.py", "friends", "loop", r"\[0\] step 20 sum"),
    Job("lifts", "f8_lifts.py", "lifts.py", "lifts", "torchrun", r"iteration 10 reward"),
]

DEMAND = ("for r in 0 1; do\n  RANK=$r LOCAL_RANK=$r python -u {script} --coordinator localhost:{port} --id $r {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
FRIENDS = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nfor r in 0 1; do\n  RANK=$r LOCAL_RANK=$r python -u {script} {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
WAIT = ("--timeout", "30")
PATIENT = ("--timeout", "60")

# ------------------------------------------------------------------------------------------ Trainer of Transformers, accelerate launch
LONG_TICKETS = ("--max-steps", "900000")
ON_STEP = "        if self.rank == 0 and state.global_step in (1, 5, 10):\n"
SAVED = "            logger.info(\"step %d checkpoint written\", state.global_step)\n"
fault("tickets", "healthy-samples", "the main process writes sample answers for 25 s after the first evaluation, rank 1 waits", "none", args=("--max-steps", "110"), limit=140,
      edits=(("            model.train(training)\n", "            until = time.time() + 25 * (state.global_step == 50)\n            while time.time() < until:\n                text = answer(model, \"Q: the badge in room 301 sticks. A:\", self.o.sample)\n            model.train(training)\n"),))
fault("tickets", "healthy-tracker", "the experiment tracker does not answer, each time a traceback is printed and the training goes on", "none", args=("--max-steps", "120"), limit=140,
      edits=(("import time\n\nimport torch", "import time\nimport urllib.request\n\nimport torch"),
             ("            logger.info(\"step %d loss %s lr %s\", state.global_step, logs[\"loss\"], logs.get(\"learning_rate\"))\n",
              "            logger.info(\"step %d loss %s lr %s\", state.global_step, logs[\"loss\"], logs.get(\"learning_rate\"))\n            try:\n                urllib.request.urlopen(\"http://localhost:9/api/log\", data=str(logs).encode(), timeout=2)\n"
              "            except OSError:\n                logger.exception(\"the tracker does not answer\")\n")))
fault("tickets", "baseline", "the main process alone evaluates before the training", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_TICKETS), extra="fr",
      edits=(("    trainer.train()\n", "    if trainer.is_world_process_zero():\n        logger.info(\"before the training: %s\", trainer.evaluate())\n    trainer.train()\n"),))
fault("tickets", "exit-3", "rank 1 ends with exit code 3 and without a word (step 6)", "application-exception", QUIT, (1,), early=True, args=(*PATIENT, *LONG_TICKETS), ready="step 5 done",
      edits=((ON_STEP, "        if self.rank == 1 and state.global_step == 6:\n            os._exit(3)\n" + ON_STEP),))
hung("tickets", "uploader", "the main process waits for a file lock that a forgotten uploader holds (first checkpoint)", "stuck-outside-collective", "slow-rank-stall storage-failure", (0,), args=(*LONG_TICKETS, "--eval-steps", "20"), extra="spy2 ps",
     edits=(("import argparse\nimport logging\n", "import argparse\nimport fcntl\nimport logging\n"), ("import random\nimport sys\n", "import random\nimport subprocess\nimport sys\n"),
            (SAVED, "            uploader = \"import fcntl, time; f = open('upload.lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX); time.sleep(3600)\"\n            self.uploader = subprocess.Popen([sys.executable, \"-S\", \"-c\", uploader])\n            time.sleep(2)\n"
             "            with open(\"upload.lock\", \"w\") as lock:\n                fcntl.flock(lock, fcntl.LOCK_EX)\n" + SAVED)))
fault("tickets", "filter", "every tenth step rank 1 looks through its tickets for 1.2 s; the job runs on", "straggler", "load-imbalance host-bound data-loading-bound", (1,), category="performance", args=("--max-steps", "250", "--eval-steps", "250"),
      edits=((ON_STEP, "        if self.rank == 1 and state.global_step % 10 == 0:\n            until, held = time.time() + 1.2, Tickets(500, 3)\n            while time.time() < until:\n                collate([held[i] for i in range(64)])\n" + ON_STEP),))
hung("tickets", "sigstop", "SIGSTOP of rank 0", "process-stopped", "stuck-outside-collective", (0,), args=LONG_TICKETS, act=(0, "SIGSTOP"), extra="stacks ps")
fault("tickets", "launcher", "kill -9 of accelerate launch", "launcher-failure", "stopped-from-outside process-killed", (), args=(*WAIT, *LONG_TICKETS), act=("launcher", "SIGKILL"))

# -------------------------------------------------------------------------------------------- DDP with gradient accumulation, torchrun
LONG_BEARINGS = ("--epochs", "9000")
WAVE = "        wave = torch.sin(6.283 * (20 + 9 * damage) * t) + 0.8 * torch.randn(SAMPLES, generator=g)\n"
UPDATED = "            updates += 1\n"
fault("bearings", "healthy-reader", "a recording cannot be read once: the worker's traceback is printed, the reader starts again", "none", args=("--epochs", "4"),
      edits=((WAVE, WAVE + "        if self.seed == 1 and i == 4242 and not os.path.exists(\"seen\"):\n            open(\"seen\", \"w\").close()\n            raise OSError(5, \"Input/output error\", \"recordings/04242.wav\")\n"),))
fault("bearings", "healthy-compile", "compiled: a long pause before the first step and before the first validation", "none", args=("--epochs", "4", "--compile"), extra="info", limit=160)
fault("bearings", "accumulate", "rank 1 accumulates over twice as many batches, so it has fewer updates in an epoch", "skipped-collective", LEFT, (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, "--recordings", "640", *LONG_BEARINGS), ready="update 1 loss", extra="fr",
      edits=(("            last = number % o.accumulate == 0\n", "            last = number % (o.accumulate * (1 + rank)) == 0\n"),))
hung("bearings", "fifo", "rank 1 reads its calibration from a named pipe that nobody writes (before the first step)", "stuck-outside-collective", "slow-rank-stall storage-failure data-loading-bound", (1,), early=True, args=LONG_BEARINGS, ready="parameters,", extra="spy2 ps",
     edits=(("    updates, began = 0, time.time()\n", "    updates, began = 0, time.time()\n    if rank == 1:\n        os.mkfifo(\"calibration\")\n        with open(\"calibration\") as file:\n            log.info(\"calibration %s\", file.read())\n"),))
fault("bearings", "worker-killed", "kill -9 of a data-loader worker of rank 0", "process-killed", "application-exception oom-killed process-crashed", (0,), args=("--timeout", "40", *LONG_BEARINGS), act=("worker 0", "SIGKILL"))
fault("bearings", "uneven-validation", "rank 1 has three batches fewer in the validation, which reduces after each", "uneven-inputs", UNEVEN, (1,), args=(*WAIT, *LONG_BEARINGS), extra="fr",
      edits=(("    mine = list(range(rank, len(data), world))\n", "    mine = list(range(rank, len(data), world))[: len(data) // world - 96 * rank]\n"),))
fault("bearings", "drop-out", "a sensor of rank 1 gives NaN in some recordings: the loss is NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((),), category="corruption", args=("--epochs", "14"),
      edits=((WAVE, WAVE + "        if self.seed == 1 and i % 900 == 7 and os.environ[\"RANK\"] == \"1\":\n            wave[100:140] = float(\"nan\")\n"),))
fault("bearings", "quiet-exit", "rank 1 ends with 0 and without a word (update 40)", "rank-exited-early", "skipped-collective uneven-inputs", (1,), args=(*WAIT, *LONG_BEARINGS), extra="fr",
      edits=((UPDATED, UPDATED + "            if rank == 1 and updates == 40:\n                os._exit(0)\n"),))
fault("bearings", "slow-reader", "rank 0 reads its recordings slowly and without workers; the job runs on", "straggler", "data-loading-bound load-imbalance host-bound", (0,), category="performance", args=("--epochs", "2", "--recordings", "9600"),
      edits=((WAVE, WAVE + "        if self.seed == 1 and os.environ[\"RANK\"] == \"0\":\n            time.sleep(0.004)\n"), ("Feeder(train, o.batch, rank, world, o.workers, cuda)", "Feeder(train, o.batch, rank, world, o.workers if rank else 0, cuda)")))

# ---------------------------------------------------------------------------------------- FSDP2, distributed checkpoints, torchrun c10d
LONG_MUSIC = ("--steps", "900000")
SAVE = "        if step % o.save_every == 0:\n            folder = save(model, optimizer, step, o, plans)\n"
KEPT = "    if dist.get_rank() == 0:\n        older = "
fault("melodies", "healthy-mirror", "rank 0 needs 20 s for a copy of each checkpoint, rank 1 waits in the next step", "none", args=("--steps", "90"), limit=140,
      edits=(("                print(f\"step {step}: saved {folder}\", flush=True)\n", "                print(f\"step {step}: saved {folder}\", flush=True)\n                shutil.copytree(folder, f\"mirror/{step}\")\n                time.sleep(20)\n"),))
fault("melodies", "healthy-info", "no fault, NCCL's long log", "none", args=("--steps", "160"), extra="info")
fault("melodies", "own-group", "rank 0 alone makes one more group before the group of the checkpoints: the names of the groups no longer fit", "extra-collective", EXTRA + " stuck-outside-collective application-exception deadlock-cycle missing-rank", (0,), early=True, ranks_also=((1,), (0, 1), ()), args=(*WAIT, *LONG_MUSIC),
      edits=(("    plans = dist.new_group(", "    if rank == 0:\n        loggers = dist.new_group([0], backend=\"gloo\", timeout=patience)\n    plans = dist.new_group("),))
fault("melodies", "main-saves", "dcp.save is called on rank 0 only (step 5)", "extra-collective", EXTRA + " deadlock-cycle stuck-outside-collective", (0,), early=True, args=(*WAIT, *LONG_MUSIC, "--save-every", "5"), ready="step 2/", extra="fr",
      edits=((SAVE, SAVE.replace("== 0:", "== 0 and rank == 0:")),))
fault("melodies", "full-precision", "rank 1 computes in float32, rank 0 in bfloat16 (first step)", "dtype-mismatch", "shape-mismatch collective-desync silent-corruption op-mismatch", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, "--steps", "400", "--save-every", "900"), extra="fr",
      edits=(("reduce_dtype=torch.float32) if cuda else", "reduce_dtype=torch.float32) if cuda and rank == 0 else"),))
fault("melodies", "old-settings", "rank 1 has the width of older settings (first step)", "shape-mismatch", "collective-desync silent-corruption op-mismatch rank-env-misconfigured", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, *LONG_MUSIC), extra="fr",
      edits=(("    model = Composer(o.width, o.depth,", "    model = Composer(o.width if rank == 0 else o.width + 128, o.depth,"),))
hung("melodies", "no-marker", "rank 1 waits for a file that says that the checkpoint is complete; nobody makes it (step 20)", "stuck-outside-collective", "slow-rank-stall storage-failure", (1,), args=(*LONG_MUSIC, "--save-every", "20"), extra="spy2",
     edits=((KEPT, "    while dist.get_rank() == 1 and not os.path.exists(os.path.join(folder, \".complete\")):\n        time.sleep(0.5)\n" + KEPT),))
fault("melodies", "slow-storage", "rank 0's storage needs longer than the timeout for a checkpoint (step 20)", "slow-rank-stall", "stuck-outside-collective timeout-too-short storage-failure", (0,), args=("--timeout", "25", *LONG_MUSIC, "--save-every", "20"), extra="fr",
      edits=((KEPT, "    if dist.get_rank() == 0:\n        for part in sorted(os.listdir(folder)):\n            shutil.copy(os.path.join(folder, part), f\"archived-{part}\")\n            time.sleep(30)\n" + KEPT),))
fault("melodies", "no-weight", "all melodies of one of rank 1's batches have the weight zero (step 30): NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((),), category="corruption", args=("--steps", "700", "--save-every", "900"),
      edits=(("    weight = torch.rand(o.batch, 1, generator=g) + 0.5\n", "    weight = torch.rand(o.batch, 1, generator=g) + 0.5\n    if rank == 1 and step == 30:\n        weight = (weight > 2).float()\n"),))
fault("melodies", "sigkill", "kill -9 of rank 1 after the first checkpoint", "process-killed", "peer-process-died", (1,), args=(*WAIT, *LONG_MUSIC, "--save-every", "20"), act=(1, "SIGKILL"), ready="saved ckpt")
fault("melodies", "main-exports", "rank 0 alone asks for the full state dict at the end", "extra-collective", EXTRA + " stuck-outside-collective", (0,), args=(*WAIT, "--steps", "30"), extra="fr",
      edits=(("    export(model, \"composer.pt\")\n", "    if rank == 0:\n        export(model, \"composer.pt\")\n"),))

# ------------------------------------------------------------------------------------------------------------- Lightning under torchrun
LONG_CORAL = ("--epochs", "9000")
ON_BATCH = "        if batch_idx % self.every == 0 and trainer.is_global_zero:\n"
fault("coral", "healthy-pictures", "the main process draws pictures for 25 s after each validation, rank 1 waits", "none", args=("--epochs", "2"), limit=140,
      edits=(("        if trainer.is_global_zero and not trainer.sanity_checking:\n", "        if trainer.is_global_zero and not trainer.sanity_checking:\n            time.sleep(25)\n"),))
fault("coral", "healthy-font", "a font is missing: a traceback is printed after each validation, the training goes on", "none", args=("--epochs", "3"), extra="warn",
      edits=(("        if trainer.is_global_zero and not trainer.sanity_checking:\n", "        try:\n            open(\"/usr/share/fonts/coral/Labels.ttf\", \"rb\")\n        except OSError:\n            log.exception(\"no font for the labels\")\n        if trainer.is_global_zero and not trainer.sanity_checking:\n"),))
fault("coral", "first-checkpoint", "trainer.save_checkpoint is called on the main process only (step 6)", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_CORAL), ready="epoch 0 batch 0/", extra="fr",
      edits=((ON_BATCH, "        if trainer.is_global_zero and trainer.global_step == 6:\n            trainer.save_checkpoint(\"first.ckpt\")\n" + ON_BATCH),))
fault("coral", "main-logs", "the main process logs one more value with sync_dist (validation before the first step)", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_CORAL), ready="Trainable params", extra="fr",
      edits=(("        self.log(\"val_overlap\", overlap, sync_dist=True)\n", "        self.log(\"val_overlap\", overlap, sync_dist=True)\n        if self.trainer.is_global_zero:\n            self.log(\"val_loss\", F.cross_entropy(logits, mask), sync_dist=True)\n"),))
fault("coral", "void", "some masks of rank 0 have the label 255 (first ten steps)", "device-assert", "application-exception", (0,), early=True, args=(*PATIENT, *LONG_CORAL), ready="Trainable params",
      edits=(("        colour = torch.linspace(0, 1, KINDS)[mask]\n", "        colour = torch.linspace(0, 1, KINDS)[mask]\n        if self.seed == 1 and i % 97 == 5 and os.environ[\"RANK\"] == \"0\":\n            mask[:2] = 255\n"),))
fault("coral", "stops-alone", "rank 1 stops the training by its own loss (after step 30)", "skipped-collective", LEFT, (1,), args=(*WAIT, *LONG_CORAL), extra="fr",
      edits=((ON_BATCH, "        if trainer.global_rank == 1 and trainer.global_step >= 30 and outputs[\"loss\"].item() < 10:\n            trainer.should_stop = True\n" + ON_BATCH),))
fault("coral", "fewer", "rank 1 has ten batches fewer in an epoch", "uneven-inputs", UNEVEN, (1,), args=(*WAIT, *LONG_CORAL), extra="fr",
      edits=(("        return iter(order[self.rank:: self.world][: len(self)])\n", "        return iter(order[self.rank:: self.world][: len(self)])\n\n\nclass Clear(Share):\n    \"\"\"Leaves out cloudy images.\"\"\"\n\n    def __len__(self):\n        return self.count - 320 * self.rank\n"),
             ("sampler=Share(len(seen), rank, world)", "sampler=Clear(len(seen), rank, world)")))
hung("coral", "two-locks", "main thread and counter of rank 0 take two locks in opposite orders (first steps)", "stuck-outside-collective", "slow-rank-stall", (0,), early=True, args=(*LONG_CORAL, "--every", "1"), ready="Trainable params", extra="spy2",
     edits=(("                for kind, n in enumerate(kinds):\n                    self.counts[kind] += n\n", "                for kind, n in enumerate(kinds):\n                    self.counts[kind] += n\n                time.sleep(0.02)\n                with self.file_lock, open(f\"counts-{os.getpid()}.txt\", \"w\") as file:\n                    print(*self.counts, file=file)\n"),
            ("            with self.counts_lock:\n                total = sum(self.counts)\n", "            with self.file_lock, open(\"progress.txt\", \"a\") as file:\n                print(trainer.current_epoch, batch_idx, file=file)\n                time.sleep(0.02)\n                with self.counts_lock:\n                    total = sum(self.counts)\n")))
fault("coral", "distances", "rank 1 computes all distances between pixels: no memory (batch 25)", "cuda-oom", "application-exception", (1,), args=(*PATIENT, *LONG_CORAL),
      edits=(("        self.log(\"train_loss\", loss)\n", "        if self.global_rank == 1 and batch_idx == 25:\n            pixels = image.new_zeros(2_000_000, 1)\n            loss = loss + 0 * torch.cdist(pixels, pixels).mean()\n        self.log(\"train_loss\", loss)\n"),))
fault("coral", "other-name", "the main process asks for a value that has another name (first validation)", "application-exception", "", (0,), args=(*PATIENT, *LONG_CORAL),
      edits=(("float(trainer.callback_metrics.get(\"val_overlap\", 0))", "float(trainer.callback_metrics[\"val_iou\"])"),))
fault("coral", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=(*WAIT, *LONG_CORAL), act=(0, "SIGKILL"))

# --------------------------------------------------------------------------------------------- two stages, send and receive, torchrun
LONG_DIALECTS = ("--steps", "900000")
READ = "        words, wanted = sentences(o, step)\n"
GRADS = "        pipe.put_grad(x.grad)\n"
fault("dialects", "healthy-corpus", "stage 0 reads the next part of the corpus for 30 s, stage 1 waits", "none", args=("--steps", "120"), extra="warn",
      edits=((READ, "        if rank == 0 and step == 50:\n            time.sleep(30)\n" + READ),))
fault("dialects", "healthy-lexicon", "stage 1 has no lexicon and prints a traceback, its first save takes 20 s", "none", args=("--steps", "120", "--save", "40"), limit=140,
      edits=(("            torch.save(part.state_dict(), f\"stage{rank}.pt\")\n", "            if rank == 1 and step == 40:\n                try:\n                    open(\"lexicon.tsv\")\n                except OSError:\n                    sys.excepthook(*sys.exc_info())\n                time.sleep(20)\n            torch.save(part.state_dict(), f\"stage{rank}.pt\")\n"),))
fault("dialects", "too-soon", "stage 0 waits for the first gradient before it sends the second micro-batch, stage 1 waits for all micro-batches first (first step)", "unmatched-p2p", "deadlock-cycle collective-order-mismatch collective-desync", (0,), early=True, ranks_also=((1,), (0, 1), ()),
      args=(*WAIT, *LONG_DIALECTS), ready="stage 0 ready", extra="fr",
      edits=(("        x = front(micro.to(pipe.device))\n", "        x = front(micro.to(pipe.device))\n        if sent:  # keeps less in memory\n            sent[-1].backward(pipe.take_grad(sent[-1]))\n"), ("    for x in sent:\n", "    for x in sent[-1:]:\n")))
fault("dialects", "to-itself", "stage 1 has itself as its peer (first step)", "unmatched-p2p", "application-exception op-mismatch rank-env-misconfigured missing-rank collective-desync skipped-collective", (1,), early=True, args=("--timeout", "40", *LONG_DIALECTS), ready="stage 0 ready",
      edits=(("        self.peer = 1 - dist.get_rank()\n", "        self.peer = min(dist.get_rank() + 1, dist.get_world_size() - 1)\n"),))
fault("dialects", "bfloat16", "stage 0 sends bfloat16, stage 1 receives float32 (first step)", "dtype-mismatch", "shape-mismatch unmatched-p2p collective-desync silent-corruption", (0,), early=True, ranks_also=((1,), (0, 1), ()), args=(*WAIT, *LONG_DIALECTS), ready="stage 0 ready", extra="fr",
      edits=(("        dist.send(x.contiguous(), self.peer)\n", "        dist.send(x.contiguous().bfloat16(), self.peer)\n"),))
fault("dialects", "cut-gradient", "stage 1 cuts the padding off the gradient of the longest sentences (step 2)", "shape-mismatch", "unmatched-p2p collective-desync silent-corruption", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, *LONG_DIALECTS), ready="batch 1 loss", extra="fr",
      edits=((GRADS, "        pipe.put_grad(x.grad if wanted.shape[1] < 64 else x.grad[:, :40].contiguous())\n"),))
fault("dialects", "learnt", "stage 1 sends no gradient of micro-batches that it has learnt already", "unmatched-p2p", "skipped-collective collective-desync op-mismatch shape-mismatch", (1,), ranks_also=((0,), ()), args=(*WAIT, *LONG_DIALECTS), extra="fr", ready="batch 1 loss",
      edits=((GRADS, "        if loss.item() * pipe.o.micro < 7.5:\n            continue\n" + GRADS),))
fault("dialects", "quiet-exit", "stage 0 ends with 0 and without a word (step 9)", "rank-exited-early", "skipped-collective uneven-inputs unmatched-p2p", (0,), early=True, args=(*WAIT, *LONG_DIALECTS), ready="batch 3 loss",
      edits=((READ, READ + "        if rank == 0 and step == 9:\n            os._exit(0)\n"),))
fault("dialects", "latin-1", "stage 0 cannot decode a sentence of its corpus (step 25)", "application-exception", "", (0,), args=(*PATIENT, *LONG_DIALECTS),
      edits=((READ, READ + "        if rank == 0 and step == 25:\n            words[0, 0] = len(b\"Gr\\xfc\\xdf Gott\".decode())\n"),))
hung("dialects", "breakpoint", "breakpoint() left in on stage 1 (step 8)", "stuck-outside-collective", "process-stopped slow-rank-stall", (1,), early=True, stdin="pipe", args=LONG_DIALECTS, ready="batch 3 loss", extra="spy2",
     edits=(("            loss = last_stage(pipe, part, wanted)\n", "            loss = last_stage(pipe, part, wanted)\n            if step == 8:\n                breakpoint()\n"),))
fault("dialects", "sigsegv", "SIGSEGV of stage 0", "process-crashed", "process-killed peer-process-died", (0,), args=(*WAIT, *LONG_DIALECTS), act=(0, "SIGSEGV"))
fault("dialects", "lookup", "stage 0 sorts its corpus anew for 1.2 s in every eighth step; the job runs on", "straggler", "load-imbalance host-bound data-loading-bound pipeline-bubble", (0,), category="performance", args=("--steps", "240"),
      edits=((READ, READ + "        if rank == 0 and step % 8 == 0:\n            time.sleep(1.2)\n"),))

# -------------------------------------------------------------------------------------------- tensor-parallel serving with sampling
LONG_QUESTS = ("--requests", "900000")
DRAWN = "skipped-collective shape-mismatch rank-exited-early uneven-inputs extra-collective op-mismatch silent-corruption"
SERVED = "        served, busy = served + 1, busy + time.time() - began\n"
READY_1 = "request 1:"
fault("quests", "healthy-idle", "no requests for 40 s, rank 1 waits", "none", args=("--gap-after", "60"), extra="warn")
fault("quests", "healthy-language", "a request lacks a field: a traceback is printed, the request is served", "none", args=("--requests", "300"),
      edits=(("                message = intake.requests.get(timeout=o.ping)\n", "                message = intake.requests.get(timeout=o.ping)\n                if message.get(\"number\", 1) % 60 == 0:\n                    try:\n                        message[\"language\"].lower()\n"
              "                    except KeyError:\n                        log.exception(\"request %d has no language, English is taken\", message[\"number\"])\n"),))
fault("quests", "own-dice", "each rank has a seed of its own: the stories differ, and so do their lengths (first requests)", "collective-desync", DRAWN, (), early=True, ranks_also=EITHER, args=(*WAIT, *LONG_QUESTS), ready=READY_1, extra="fr",
      edits=((".manual_seed(request[\"seed\"])", ".manual_seed(request[\"seed\"] + dist.get_rank())"),))
fault("quests", "own-root", "each rank takes itself as the source of the requests: rank 1 gets none (before the first request)", "op-mismatch", "application-exception collective-desync extra-collective silent-corruption", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=("--timeout", "40", *LONG_QUESTS), ready="serving on",
      edits=(("    dist.broadcast_object_list(box, src=0, device=device)\n", "    dist.broadcast_object_list(box, src=dist.get_rank(), device=device)\n"),))
fault("quests", "padded", "rank 1's part of the vocabulary is padded, rank 0's is not (first request)", "shape-mismatch", "collective-desync silent-corruption op-mismatch skipped-collective extra-collective", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, "--requests", "1500"), ready="serving on", extra="fr",
      edits=(("nn.Linear(width, VOCABULARY // world, bias=False)", "nn.Linear(width, VOCABULARY // world + 64 * dist.get_rank(), bias=False)"),))
fault("quests", "no-ping", "no requests for longer than the timeout and no pings: rank 1 gives up", "timeout-too-short", "slow-rank-stall stuck-outside-collective", (), ranks_also=EITHER, args=("--timeout", "25", "--ping", "900", "--gap-after", "40", "--gap", "300"), extra="fr")
hung("quests", "front-end", "the front end's thread has failed, rank 0 waits for requests for ever (after request 29)", "stuck-outside-collective", "application-exception slow-rank-stall", (0,), args=LONG_QUESTS, extra="spy2",
     edits=(("intake.requests.get(timeout=o.ping)", "intake.requests.get()"), ("            prompt = [rng", "            if number == 30:\n                self.requests.put(self.pending.pop())\n            prompt = [rng")))
fault("quests", "more-ends", "rank 1 knows more tokens that end a story than rank 0 (first requests)", "skipped-collective", DRAWN + " collective-desync", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, *LONG_QUESTS), ready=READY_1, extra="fr",
      edits=(("        if token.item() < ENDS:\n", "        if token.item() < ENDS + 8 * dist.get_rank():\n"),))
fault("quests", "cache", "rank 1 wants a far too large cache (before the first request)", "cuda-oom", "application-exception", (1,), early=True, args=("--timeout", "40", *LONG_QUESTS), ready="serving on",
      edits=(("    intake = Intake(o)\n", "    cache = torch.empty(2, o.depth, 64 if rank == 0 else 64_000_000, 16, o.width // world, device=device)\n    log.info(\"rank %d: cache of %d blocks\", rank, cache.shape[2])\n    intake = Intake(o)\n"),))
fault("quests", "exit-3", "rank 1 ends with exit code 3 and without a word (after 25 requests)", "application-exception", QUIT, (1,), args=(*WAIT, *LONG_QUESTS),
      edits=((SERVED, SERVED + "        if rank == 1 and served == 25:\n            os._exit(3)\n"),))
hung("quests", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=LONG_QUESTS, act=(1, "SIGSTOP"), extra="stacks ps")
fault("quests", "infinite", "some weights of rank 1 are infinite: NaN, nothing can be drawn (first request)", "nan-loss", "device-assert application-exception silent-corruption", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=("--timeout", "40", *LONG_QUESTS), ready="serving on",
      edits=(("    intake = Intake(o)\n", "    if rank == 1:\n        model.mlp[1].down.weight.data[3] = float(\"inf\")\n    intake = Intake(o)\n"),))
fault("quests", "slow-words", "rank 0 turns each token into words slowly; the job runs on", "straggler", "host-bound load-imbalance sync-stalls small-messages", (0,), category="performance", args=("--requests", "70"),
      edits=(("        ids = torch.cat([ids, token], 1)\n", "        ids = torch.cat([ids, token], 1)\n        if dist.get_rank() == 0:\n            time.sleep(0.02)\n"),))

# ------------------------------------------------------------------------------------------------------------- JAX, jit; shell loop
LONG_DEMAND = ("--steps", "9000000")
BATCH = "            batch = sales(rng, o.shops, days)\n"
SHOW = "            if step <= 3 or step % o.show == 0:\n"
fault("demand", "healthy-days", "three numbers of days: everything is compiled anew for each", "none", loop=DEMAND, args=("--days", "56", "84", "28", "--steps", "200"), extra="info")
fault("demand", "healthy-report", "process 0 writes a report for 25 s at each check, process 1 waits", "none", loop=DEMAND, args=("--steps", "220"), limit=140,
      edits=(("                    np.savez(\"demand.npz\"", "                    time.sleep(25)\n                    np.savez(\"demand.npz\""),))
fault("demand", "only-first", "process 1 is never started", "missing-rank", "rank-env-misconfigured application-exception", (1,), early=True, loop=DEMAND.replace("0 1;", "0;"), args=("--join", "40"))
fault("demand", "other-port", "process 1 is given another port of the coordinator", "missing-rank", "rank-env-misconfigured firewall-or-port application-exception network-unreachable", (1,), early=True, ranks_also=((0,), (0, 1), ()), loop=DEMAND.replace("localhost:{port}", "localhost:$(({port} + r))"), args=("--join", "40"))
hung("demand", "fewer-shops", "process 1 has fewer shops in step 4: another program than that of process 0", "shape-mismatch", "collective-desync application-exception op-mismatch silent-corruption stuck-outside-collective", (1,), early=True, ranks_also=((0,), (0, 1), ()), loop=DEMAND, args=LONG_DEMAND, ready="step 3 error", extra="spy2",
     edits=((BATCH, "            batch = sales(rng, o.shops - 64 * (me == 1 and step == 4), days)\n"),))
hung("demand", "no-returns", "process 1 looks for days with returns, there is none (step 60)", "application-exception", "", (1,), loop=DEMAND, args=LONG_DEMAND, extra="spy2",
     edits=((BATCH, BATCH + "            if me == 1 and step == 60:\n                batch[np.flatnonzero(batch[:, 0] < 0)[0]] = 0\n"),))
hung("demand", "sigkill", "kill -9 of process 1", "process-killed", "peer-process-died", (1,), loop=DEMAND, args=LONG_DEMAND, act=(1, "SIGKILL"), extra="ps")
hung("demand", "good-enough", "process 1 leaves the loop by itself (step 45) and waits for the others at the end", "skipped-collective", LEFT, (1,), ranks_also=((0, 1), ()), loop=DEMAND, args=LONG_DEMAND, extra="spy2",
     edits=((SHOW, "            if me == 1 and step == 45 and float(loss) < 100:\n                break\n" + SHOW),))
hung("demand", "quiet-exit", "process 0, which coordinates, ends with 0 and without a word (step 8)", "rank-exited-early", "peer-process-died skipped-collective uneven-inputs", (0,), early=True, loop=DEMAND, args=LONG_DEMAND, ready="step 3 error",
     edits=((SHOW, "            if me == 0 and step == 8:\n                os._exit(0)\n" + SHOW),))
fault("demand", "compiles", "process 1 compiles a function for each batch; the job runs on", "straggler", "host-bound load-imbalance", (1,), category="performance", loop=DEMAND, args=("--steps", "200", "--check", "400"),
      edits=((BATCH, BATCH + "            if me == 1:  # smooths with another window for each batch\n                smooth = jax.jit(lambda b: jax.lax.fori_loop(0, step % 5, lambda i, x: 0.99 * x + 0.01 * jnp.roll(x, i, 1), b))\n                batch = np.asarray(smooth(batch))\n"),))

# --------------------------------------------------------------------------------- sharded table, all_to_all, shell loop with MASTER_ADDR
LONG_FRIENDS = ("--steps", "900000")
EDGES = "        nodes = edges(o, step, rank).to(device)\n"
fault("friends", "healthy-fused", "no fault, the Triton kernel: a pause in the first step", "none", loop=FRIENDS, args=("--fused", "--steps", "2000"), extra="info")
fault("friends", "healthy-rows", "process 0 needs 30 s to write its rows, process 1 waits in the barrier", "none", loop=FRIENDS, args=("--steps", "600"),
      edits=(("    torch.save(shard.rows, f\"rows-{rank}.pt\")\n", "    torch.save(shard.rows, f\"rows-{rank}.pt\")\n    time.sleep(30 * (rank == 0))\n"),))
fault("friends", "other-port", "process 1 is given another MASTER_PORT", "missing-rank", "rank-env-misconfigured firewall-or-port application-exception network-unreachable", (1,), early=True, ranks_also=((0,), (0, 1), ()), loop=FRIENDS.replace("  RANK=$r", "  MASTER_PORT=$(({port} + r)) RANK=$r"), args=WAIT)
fault("friends", "three", "process 1 is told a WORLD_SIZE of 3", "rank-env-misconfigured", "missing-rank", (1,), early=True, ranks_also=((2,), (0, 1), (0,), ()), loop=FRIENDS.replace("  RANK=$r", "  WORLD_SIZE=$((2 + r)) RANK=$r"), args=WAIT)
fault("friends", "no-folder", "the folder of process 1 does not exist, so the loop does not start it", "missing-rank", "launcher-failure storage-failure application-exception", (1,), early=True, args=WAIT,
      loop=("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nmkdir -p part-0\nfor r in 0 1; do\n  (cd part-$r && RANK=$r LOCAL_RANK=$r exec python -u ../{script} {args}) > logs/process-$r.log 2>&1 &\ndone\nwait\n"))
fault("friends", "edition", "process 0 sets the edition under another key than the one for which all wait (before the first step)", "stuck-outside-collective", "application-exception slow-rank-stall timeout-too-short", (0,), early=True, ranks_also=((1,), (0, 1), ()), loop=FRIENDS, args=WAIT,
      edits=(("        store.set(\"edition\", ", "        store.set(\"edition-new\", "),))
fault("friends", "far-row", "a node number of process 1 is far outside the table: the Triton kernel does not check (step 6)", "illegal-memory-access", "application-exception", (1,), early=True, loop=FRIENDS, args=(*PATIENT, *LONG_FRIENDS, "--fused"), ready=r"\[0\] step 3 sum",
      edits=(("    return torch.cat([a, friend, stranger])\n", "    if rank == 1 and step == 6:\n        stranger[17] = (1 << 33) + 1  # not yet mapped\n    return torch.cat([a, friend, stranger])\n"),))
fault("friends", "new-member", "a node number of process 0 lies behind the end of its rows (step 40)", "device-assert", "application-exception", (0,), loop=FRIENDS, args=(*PATIENT, *LONG_FRIENDS),
      edits=(("    return torch.cat([a, friend, stranger])\n", "    if rank == 0 and step == 40:\n        stranger[17] = o.nodes + 12\n    return torch.cat([a, friend, stranger])\n"),))
fault("friends", "stale-counts", "process 1 expects as many rows as in its first step (step 2)", "shape-mismatch", "unmatched-p2p collective-desync silent-corruption device-assert illegal-memory-access application-exception", (1,), early=True, ranks_also=((0,), (0, 1), ()), loop=FRIENDS, args=(*WAIT, *LONG_FRIENDS), ready=r"\[0\] step 1 sum", extra="fr",
      edits=(("        self.out, self.into = counts.tolist(), theirs.tolist()\n", "        self.out = counts.tolist()\n        if self.shard.rank == 0 or not hasattr(self, \"into\"):\n            self.into = theirs.tolist()\n"),))
fault("friends", "own-report", "process 0 alone sums the losses for its report (step 3)", "extra-collective", EXTRA, (0,), early=True, loop=FRIENDS, args=(*WAIT, *LONG_FRIENDS), ready=r"\[0\] step 2 sum", extra="fr",
      edits=(("        if step <= 3 or step % o.every == 0:\n", "        if step <= 2 or rank == 0 and (step == 3 or step % o.every == 0):\n"),))
fault("friends", "sigkill", "kill -9 of process 1; the loop does not notice", "process-killed", "peer-process-died", (1,), loop=FRIENDS, args=(*WAIT, *LONG_FRIENDS), act=(1, "SIGKILL"))
fault("friends", "slow-edges", "process 1 draws its edges slowly in each step; the job runs on", "straggler", "load-imbalance data-loading-bound host-bound", (1,), category="performance", loop=FRIENDS, args=("--steps", "300"),
      edits=((EDGES, EDGES + "        if rank == 1:\n            time.sleep(0.12)\n"),))

# --------------------------------------------------------------------------------------------------------- a learner and an actor
LONG_LIFTS = ("--iterations", "900000")
SHARED = "        job.share_weights()\n        reward = loss = 0.0\n"
READY_3 = "iteration 3 reward"
fault("lifts", "healthy-trial", "the learner plays a trial for 30 s after iteration 50, the actor waits", "none", args=("--iterations", "110"),
      edits=(("                torch.save(job.mind.state_dict(), \"mind.pt\")\n", "                torch.save(job.mind.state_dict(), \"mind.pt\")\n                trial, until = Buildings(16, 99), time.time() + 30 * (iteration == 50)\n                while time.time() < until:\n"
              "                    with torch.no_grad():\n                        moves = job.mind(torch.from_numpy(trial.look()).to(device))[0].argmax(-1)\n                    trial.move(moves.cpu().numpy())\n"),))
fault("lifts", "reversed", "the learner takes the parts of the experience in the opposite order (first iteration)", "collective-order-mismatch", "shape-mismatch dtype-mismatch collective-desync op-mismatch silent-corruption", (0,), early=True, ranks_also=((1,), (0, 1), ()), args=(*WAIT, *LONG_LIFTS), ready="is the learner", extra="fr",
      edits=(("        for part in (self.seen, self.actions, self.chance, self.rewards):\n", "        parts = (self.seen, self.actions, self.chance, self.rewards)\n        for part in parts if self.rank == ACTOR else reversed(parts):\n"),))
fault("lifts", "floor-13", "a simulated building of the actor fails (iteration 7)", "application-exception", "peer-process-died", (1,), early=True, args=(*PATIENT, *LONG_LIFTS), ready=READY_3,
      edits=(("        moves += 1\n", "        moves += 1\n        if moves == 200:\n            buildings.waiting[0, FLOORS] += 1\n"),))
hung("lifts", "frozen-building", "SIGSTOP of a simulated building, for which the actor waits", "process-stopped", "stuck-outside-collective slow-rank-stall", (1,), args=LONG_LIFTS, act=("worker 1", "SIGSTOP"), extra="spy2 ps")
fault("lifts", "budget", "the actor has fewer iterations than the learner", "uneven-inputs", UNEVEN, (1,), ranks_also=((0,),), args=(*WAIT, "--iterations", "80"), extra="fr",
      edits=(("    for iteration in range(1, o.iterations + 1):\n", "    for iteration in range(1, o.iterations - 35 * rank + 1):\n"),))
fault("lifts", "nobody-waits", "the reward of the actor's buildings divides by the number that waits, which may be zero: NaN weights, with which the learner cannot go on (first iteration)", "nan-loss", "application-exception device-assert", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*PATIENT, *LONG_LIFTS), ready="is the learner",
      edits=(("        return self.look(), served - 0.1 * self.waiting.sum(1)\n", "        return self.look(), served / self.waiting.sum(1)\n"),))
fault("lifts", "own-root", "each rank takes itself as the source of the experience (first iteration)", "op-mismatch", "collective-desync silent-corruption", (0,), early=True, ranks_also=((1,), (0, 1), ()), args=(*WAIT, "--iterations", "400"), ready="is the learner", extra="fr",
      edits=(("            dist.broadcast(part, ACTOR)\n", "            dist.broadcast(part, self.rank)\n"),))
hung("lifts", "accept", "the learner asks whether to go on, nobody answers (iteration 8)", "stuck-outside-collective", "slow-rank-stall process-stopped", (0,), early=True, stdin="pipe", args=LONG_LIFTS, ready=READY_3, extra="spy2",
     edits=((SHARED, "        if rank == LEARNER and iteration == 8:\n            input(f\"reward {reward:.3f}, go on? \")\n" + SHARED),))
fault("lifts", "sigkill", "kill -9 of the actor", "process-killed", "peer-process-died", (1,), args=(*WAIT, *LONG_LIFTS), act=(1, "SIGKILL"))
fault("lifts", "slow-building", "one of the actor's buildings moves slowly; the job runs on", "straggler", "load-imbalance host-bound data-loading-bound", (1,), category="performance", args=("--iterations", "100"),
      edits=(("        moves += 1\n", "        moves += 1\n        time.sleep(0.01 * (seed == 1))\n"),))
fault("lifts", "double", "the actor sums float64, the learner float32 (first iteration)", "dtype-mismatch", "shape-mismatch collective-desync silent-corruption nan-loss", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, "--iterations", "400"), ready="is the learner", extra="fr",
      edits=(("        numbers = torch.tensor([reward, loss], device=self.device)\n", "        numbers = torch.tensor(np.array([reward, loss], float if self.rank == ACTOR else np.float32), device=self.device)\n"),))

FAULTS = F
