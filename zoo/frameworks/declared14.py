"""A fourteenth set of jobs and faults: two ranks each, on two GPUs or on one that both share. The same plain data as declared.py. All jobs end by themselves
after --minutes.

EARLY has the faults that show within the first ten steps or before the first one, LATE the slow ranks that are slow only after thirty healthy steps."""

from declared import DESYNC, EXTRA_CALL, Fault, Job

F = []
EARLY = set()
LATE = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch collective-order-mismatch"
SKIP = DESYNC + " shape-mismatch dtype-mismatch collective-order-mismatch uneven-inputs"
UNEVEN = "skipped-collective extra-collective collective-desync op-mismatch shape-mismatch dtype-mismatch rank-exited-early"
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


def healthy(job, name, says, also="", extra="", **more):
    fault(job, "healthy-" + name, says, "none", also, extra=extra, **{"limit": 240, **more})


def slow(job, name, says, also="", ranks=(), late=False, **more):
    fault(job, name, says + "; the job runs on", "straggler", also, ranks, category="performance", **{"limit": 220, **more})
    if late:
        LATE.add(f"{job}/{name}")


def corrupt(job, name, says, cause, also="", ranks=(), **more):
    """Nothing stops: the numbers are wrong."""
    fault(job, name, says, cause, also, ranks, category="corruption", **{"limit": 220, **more})


JOBS = [
    Job("innings", "f14_innings.py", "innings.py", "baseball", "torchrun", r"step 20 loss"),
    Job("sherds", "f14_sherds.py", "match_sherds.py", "dig", "torchrun", r"step 20 loss"),
    Job("blazon", "f14_blazon.py", "herald.py", "arms", "torchrun", r"step 20 loss"),
    Job("baggage", "f14_baggage.py", "screen.py", "xray", "python", r"update 20 loss", packages=("lightning", "torch")),
    Job("tariffs", "f14_tariffs.py", "classify_goods.py", "customs", "torchrun", r"step 20 loss", packages=("transformers", "torch")),
    Job("lenses", "f14_lenses.py", "spots.py", "optics", "loop", r"step 20 loss", packages=("jax",)),
    Job("ores", "f14_ores.py", "krige.py", "mine", "loop", r"round 20 residual", packages=("cupy",)),
    Job("docent", "f14_docent.py", "docent.py", "museum", "loop", r"turn 2 done"),
]

LENSES = ("for i in 0 1; do\n  LOCAL_RANK=$i python -u {script} --leader 127.0.0.1:{port} --process-id $i {args} > logs/spots-$i.log 2>&1 &\ndone\nwait\n")
ORES = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --rank $r --ranks 2 {args} > logs/krige-$r.log 2>&1 &\ndone\nwait\n")
DOCENT = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nfor rank in 0 1; do\n"
          "  RANK=$rank LOCAL_RANK=$rank python -u {script} {args} > logs/docent$rank.log 2>&1 &\ndone\nwait\n")

WAIT = ("--timeout", "30")
LONG = ("--minutes", "20")
CALLS = (("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),)

# ------------------------------------------------------------------------- a transformer over pitches, DDP with no_sync, torchrun, goes on from its checkpoint
LEARN = "            loss = self.learn()\n"
FED = "            batch = next(self.feed)\n"
SUM = "        total = torch.zeros((), device=self.device)\n"
MEAN = "                self.say(f\"step {self.step} loss {mean:.4f}\")\n"
KEPT = "        if os.path.exists(self.o.keep):\n"
healthy("innings", "again", "rank 1 loses a connection once: the launcher starts again, the job goes on from its checkpoint", also="application-exception", restarts=2, limit=280,
        edits=((LEARN, LEARN + "            if self.rank == 1 and self.step == 130 and os.environ.get(\"TORCHELASTIC_RESTART_COUNT\") == \"0\":\n                raise ConnectionResetError(104, \"Connection reset by peer\")\n"),),
        why="the restart recovered")
healthy("innings", "enough", "both ranks see that the loss falls no more, and stop early",
        edits=((MEAN, MEAN + "                if self.step >= 240:\n                    self.say(\"no better for 100 steps: stops early\")\n                    break\n"),))
fault("innings", "spring-alone", "rank 0 alone computes the test, which sums over the ranks (step 40)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG, "--spring-every", "40"),
      edits=(("            if self.step % self.o.spring_every == 0:\n", "            if self.rank == 0 and self.step % self.o.spring_every == 0:\n"),))
fault("innings", "late-signing", "rank 1 reads a newer data base with one pitcher more: an embedding of another size", "shape-mismatch", "application-exception", (1,), early=True, ranks_also=ANY, args=(*WAIT, *LONG), limit=120,
      edits=(("    return 620\n", "    return 620 + (os.environ[\"RANK\"] == \"1\")\n"),))
fault("innings", "last-season", "the checkpoint is of an older version, its keys have other names: all attempts end in load_state_dict", "application-exception", "", (), early=True, ranks_also=EITHER, restarts=2, limit=230, args=(*WAIT, *LONG),
      edits=((KEPT, "        if self.rank == 0 and not os.path.exists(self.o.keep):\n            old = {name.replace(\"plates.\", \"blocks.\"): w for name, w in self.plain.state_dict().items()}\n"
              "            torch.save({\"net\": old, \"optimizer\": self.optimizer.state_dict(), \"step\": 3000}, self.o.keep)\n        dist.barrier()\n" + KEPT),))
hung("innings", "still-worker", "SIGSTOP of a data-loader worker of rank 0, which then waits for its batch", "stuck-outside-collective", "process-stopped slow-rank-stall data-loading-bound", (0,), args=LONG, act=("worker 0", "SIGSTOP"), extra="spy2 ps", limit=180)
slow("innings", "scouting", "from step 60 on rank 1 compares the appearances of a batch with each other (difflib)", SLOW + " data-loading-bound", (1,), late=True,
     edits=(("import contextlib\nimport os\n", "import contextlib\nimport difflib\nimport os\n"),
            (FED, FED + "            if self.rank == 1 and self.step >= 60 and turn == 0:\n                thrown = batch[1].tolist()\n"
             "                alike = max(difflib.SequenceMatcher(None, a, b).ratio() for shift in range(1, 6) for a, b in zip(thrown, thrown[shift:]))\n")))
slow("innings", "furnace", "the GPU of rank 0 needs longer for each step (other kernels before the step's own)", "load-imbalance", (0,),
     edits=((SUM, SUM + "        if self.rank == 0:\n            grid = torch.ones(4096, 4096, device=self.device)\n            for _ in range(25):\n                grid = torch.sigmoid(grid @ grid)\n"),))

# ------------------------------------------------------------------------- fingerprints of point clouds, DDP, a thread makes the batches, torchrun
TAKE = "            views = digger.take()\n"
DAY = "            print(f\"day {day} over, museum {share:.3f}\", flush=True)\n"
ZERO = "            optimizer.zero_grad(set_to_none=True)\n"
OPTIMIZER = "    optimizer = torch.optim.AdamW(ddp.parameters(), rate)\n"
START = "    digger.start()\n"
DUG = "            views = self.trench.dig()\n"
healthy("sherds", "sizes", "the ranks have sherds of other sizes in each step", extra="info", edits=((TAKE, TAKE + "            views = views[:, :, :20 + (5 * step + 7 * rank) % 13]\n"),))
healthy("sherds", "plates", "rank 0 draws figures for 18 s, rank 1 waits",
        edits=((DAY, DAY + "            if day == 2:\n                print(\"draws the plates of the report\", flush=True)\n                time.sleep(18)\n"),))
fault("sherds", "half-hook", "rank 1 alone has the hook that sends gradients in bfloat16 (first step)", "dtype-mismatch", "shape-mismatch collective-desync op-mismatch silent-corruption", (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="sherds on",
      edits=(("from torch.nn.parallel import DistributedDataParallel as DDP\n", "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"),
             (OPTIMIZER, "    if rank == 1:\n        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)\n" + OPTIMIZER)))
fault("sherds", "poor-trench", "rank 1 has three trays fewer in each day", "uneven-inputs", UNEVEN, (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT, *LONG, "--trays", "60"),
      edits=(("        trays = o.trays\n", "        trays = o.trays - 3 * rank\n"),))
hung("sherds", "lost-digger", "the thread that makes the batches of rank 0 ends with an exception, the training waits at its queue (step 70)", "stuck-outside-collective", "application-exception slow-rank-stall data-loading-bound", (0,), args=LONG, extra="spy2",
     edits=((DUG, DUG + "            if self.dug == 70 and os.environ[\"RANK\"] == \"0\":\n                raise ValueError(\"sherd 41 of tray 70 has no rim\")\n"),))
corrupt("sherds", "own-rate", "rank 1 has four times the learning rate: the copies of the weights drift apart", "silent-corruption", "undecided", (), early=True, ranks_also=ANY,
        edits=(("    rate = o.rate\n", "    rate = o.rate * (1 + 3 * rank)\n"),
               (ZERO, ZERO + "            if step % 20 == 0:\n                print(f\"rank {rank} step {step} size of weights {sum(w.detach().abs().sum().item() for w in net.parameters()):.3f}\", flush=True)\n")))
slow("sherds", "catalogue", "rank 1 keeps a large catalogue and calls the garbage collector in each step", SLOW, (1,),
     edits=(("import datetime\nimport os\n", "import datetime\nimport gc\nimport os\n"),
            (START, START + "    catalogue = [[number, number + 1] for number in range(1500000)] if rank == 1 else []\n"), (TAKE, TAKE + "            if catalogue:\n                gc.collect()\n")))
slow("sherds", "file-server", "from step 80 on rank 0 waits 0.2 s for the file server in every second step", SLOW + " data-loading-bound", (0,), late=True,
     edits=((TAKE, TAKE + "            if rank == 0 and step >= 80 and step % 2:\n                time.sleep(0.2)\n"),))

# ------------------------------------------------------------------------- a decoder with FSDP2 and torch.distributed.checkpoint, torchrun
SITTING = "            loss = self.sitting()\n"
ENROLLED = "        self.announce(f\"step {self.step} enrolled\")\n"
HOLD = "        while True:\n            self.step += 1\n"
SAVE = "        dcp.save({\"roll\": Roll(self)}"
SYNCS = "            syncs = part == self.o.parts - 1\n"
healthy("blazon", "archive", "rank 0 copies a checkpoint to the archive for 15 s, rank 1 waits", args=("--enrol-every", "120"),
        edits=((ENROLLED, ENROLLED + "        if self.rank == 0 and self.step == 120:\n            self.announce(\"copies the roll to the archive\")\n            time.sleep(15)\n"),))
healthy("blazon", "library", "rank 1 reads for 20 s before its first step, rank 0 waits",
        edits=((HOLD, "        if self.rank == 1:\n            print(\"rank 1 reads the library\", flush=True)\n            time.sleep(20)\n" + HOLD),))
hung("blazon", "breakpoint", "a debugger was left in: rank 0 waits at its prompt (step 6)", "stuck-outside-collective", "slow-rank-stall", (0,), early=True, stdin="pipe", ready="weights here", args=LONG, extra="spy2",
     edits=((SITTING, SITTING + "            if self.step == 6 and self.rank == 0:\n                import pdb\n                pdb.set_trace()\n"),))
fault("blazon", "enrol-alone", "rank 0 alone saves, as without sharding: dcp.save has collectives (step 60)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr spy2", args=(*WAIT, *LONG, "--enrol-every", "60"),
      edits=(("            if self.step % self.o.enrol_every == 0:\n", "            if self.rank == 0 and self.step % self.o.enrol_every == 0:\n"),))
fault("blazon", "full-roll", "the file system of the checkpoints is full (step 60)", "storage-failure", "application-exception", (0, 1), ranks_also=((0,), (1,), ()), tmpfs=(("roll", "40m"),), args=(*WAIT, *LONG, "--enrol-every", "60"))
fault("blazon", "spool", "rank 1 spools its part to slow storage before the checkpoint, longer than the timeout (step 60)", "slow-rank-stall", "stuck-outside-collective storage-failure timeout-too-short", (1,), extra="fr spy2", args=(*WAIT, *LONG, "--enrol-every", "60"),
      edits=((SAVE, "        if self.rank == 1:\n            with open(\"rank1.spool\", \"wb\") as file:\n                for _ in range(100):\n                    file.write(os.urandom(1 << 16))\n                    file.flush()\n"
              "                    os.fsync(file.fileno())\n                    time.sleep(1)\n" + SAVE),))
fault("blazon", "no-sync", "rank 1 leaves the reduction of its gradients out in one step (step 50)", "skipped-collective", SKIP + " silent-corruption", (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((SYNCS, SYNCS + "            if self.rank == 1 and self.step == 50:\n                syncs = False\n"),))
slow("blazon", "scribe", "from step 40 on rank 0 writes some pages and waits for gzip to compress them in each step", SLOW + " sync-stalls", (0,), late=True,
     edits=(("import random\nimport time\n", "import random\nimport subprocess\nimport time\n"),
            (SITTING, SITTING + "            if self.rank == 0 and self.step >= 40:\n                text = \" \".join(LEXICON[i] for i in self.college.page(60000))\n"
             "                subprocess.run([\"gzip\", \"-9\", \"-c\"], input=text.encode(), stdout=subprocess.DEVNULL)\n")))

# ------------------------------------------------------------------------- a U-Net with Lightning, which starts its own ranks
RECENT = "        self.recent = loss.detach()\n"
NOW = "        self.last = now\n"
DICE = "            print(f\"update {self.last} validation dice {float(trainer.callback_metrics['dice']):.4f}\", flush=True)\n"
SHADOW = "        low, high, metal = self.shadow(rng)\n"
SHIFT = ("--timeout", "50")
healthy("baggage", "heat-maps", "rank 0 writes heat maps for 15 s after the first validation, rank 1 waits",
        edits=((DICE, DICE + "            if self.last < 200:\n                print(\"writes heat maps\", flush=True)\n                time.sleep(15)\n"),))
fault("baggage", "darkest", "rank 0 alone logs a number with sync_dist=True (update 50)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*SHIFT, *LONG), limit=190,
      edits=((RECENT, RECENT + "        if self.trainer.is_global_zero and self.trainer.global_step == 50:\n            self.log(\"darkest\", picture.min(), sync_dist=True)\n"),))
fault("baggage", "tight-shm", "/dev/shm has 1 MB", "shm-full", "", (), early=True, ranks_also=EITHER, tmpfs=(("/dev/shm", "1m"),), args=(*SHIFT, *LONG), limit=150, extra="warn")
fault("baggage", "fewer-held", "rank 1 has three batches fewer to validate, each validation step gathers (update 60)", "uneven-inputs", UNEVEN, (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*SHIFT, *LONG, "--val-every", "120"), limit=190,
      edits=(("        held = self.o.held\n", "        held = self.o.held - 72 * rank\n"),))
fault("baggage", "no-lane", "KeyError in a callback of rank 1, rank 0 waits for it until the timeout (update 70)", "application-exception", "", (1,), args=(*SHIFT, *LONG), limit=190,
      edits=((NOW, NOW + "        if now == 70 and trainer.global_rank == 1:\n            names = {0: \"north hall\"}\n            print(\"lane in\", names[trainer.global_rank], flush=True)\n"),))
hung("baggage", "shift-log", "rank 0 waits for the lock of a file that it has locked already through another handle (update 60)", "stuck-outside-collective", "slow-rank-stall", (0,), args=LONG, extra="spy2", limit=180,
     edits=(("import argparse\nimport time\n", "import argparse\nimport fcntl\nimport time\n"),
            (NOW, NOW + "        if now == 60 and trainer.is_global_zero:\n            written, wanted = open(\"shift.log\", \"a\"), open(\"shift.log\", \"a\")\n            fcntl.flock(written, fcntl.LOCK_EX)\n            fcntl.flock(wanted, fcntl.LOCK_EX)\n")))
slow("baggage", "median", "after some 60 updates the data-loader workers of rank 0 filter each picture with a median", "data-loading-bound " + SLOW, (0,), late=True,
     edits=((SHADOW, SHADOW + "        if self.first == 0 and i >= 2880:\n            around = np.lib.stride_tricks.sliding_window_view(low, (5, 5)).reshape(SIDE - 4, SIDE - 4, 25)\n            low[2:-2, 2:-2] = np.median(around, axis=-1)\n"),))

# ------------------------------------------------------------------------- a small BERT with the Trainer of Hugging Face, torchrun
WROTE = "            write_book(path, seed)\n"
COUNTED = "        if state.global_step % 20 == 0:\n"
LABELS = "        labels = torch.tensor([one[\"label\"] for one in goods])\n"
TEXTS = "        texts = [one[\"text\"].split() for one in goods]\n"
RIGHT = "            print(f\"step {state.global_step} right {metrics.get('eval_right', 0):.4f}\", flush=True)\n"
healthy("tariffs", "report", "the main process writes a report for 12 s after an evaluation, the other one waits",
        edits=((RIGHT, RIGHT + "            if state.global_step == 200:\n                print(\"writes the report for the ministry\", flush=True)\n                time.sleep(12)\n"),))
fault("tariffs", "amendments", "rank 0, which writes the book first, misses a file: FileNotFoundError before the first step", "application-exception", "", (0,), early=True, ranks_also=((0, 1),), args=(*WAIT, *LONG), limit=120,
      edits=((WROTE, WROTE + "            with open(\"amendments.json\") as file:\n                amendments = json.load(file)\n"),))
fault("tariffs", "own-patience", "a callback of rank 1 alone ends the training, the other rank goes on (step 70)", "skipped-collective", SKIP + " rank-exited-early extra-collective", (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((COUNTED, "        if state.global_step == 70 and args.process_index == 1:\n            print(\"loss no better for 50 steps\", flush=True)\n            control.should_training_stop = True\n" + COUNTED),))
fault("tariffs", "main-evaluates", "a callback of the main process alone calls trainer.evaluate(), which gathers (step 45)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((COUNTED, "        if state.global_step == 45 and state.is_world_process_zero:\n            self.trainer.evaluate()\n" + COUNTED),))
fault("tariffs", "chapter-99", "a description of rank 1 has a chapter beyond the last one: assertion on the device (step 70)", "device-assert", "application-exception", (1,), args=(*WAIT, *LONG),
      edits=((LABELS, LABELS + "        if self.calls == 140 and os.environ[\"RANK\"] == \"1\":\n            labels[5] = CHAPTERS + 2\n"),))
fault("tariffs", "sigterm", "SIGTERM of the launcher", "stopped-from-outside", "process-killed", (), ranks_also=EITHER, args=LONG, act=("launcher", "SIGTERM"))
slow("tariffs", "spelling", "from step 50 on the collator of rank 1 compares the spelling of neighbouring words", "data-loading-bound " + SLOW, (1,), late=True,
     edits=(("class Clerk:\n", "def distance(a, b):\n    row = list(range(len(b) + 1))\n    for i, x in enumerate(a, 1):\n        corner, row[0] = row[0], i\n        for j, y in enumerate(b, 1):\n"
             "            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))\n    return row[-1]\n\n\nclass Clerk:\n"),
            (TEXTS, TEXTS + "        if self.calls > 100 and os.environ[\"RANK\"] == \"1\":\n            near = sum(distance(a, b) < 3 for words in texts for a, b in zip(words, words[1:]))\n")))

# ------------------------------------------------------------------------- JAX, shard_map over two processes, shell loop
SHOOT = "            batch = self.bench.shoot()\n"
LOSSES = "            losses.append(float(loss))\n"
healthy("lenses", "unrolled", "all surfaces and parts are unrolled: a long compilation", loop=LENSES, args=("--unrolled",))
fault("lenses", "one-process", "the second process is never started", "missing-rank", "rank-env-misconfigured launcher-failure", (1,), early=True, ranks_also=ANY, loop=LENSES.replace("in 0 1", "in 0"), args=("--patience", "45"), limit=130)
hung("lenses", "more-surfaces", "process 1 is started with more surfaces (first step)", "shape-mismatch", "rank-env-misconfigured collective-desync silent-corruption op-mismatch", (1,), early=True, ranks_also=ANY, args=LONG, ready="M weights", extra="spy2 info", env=CALLS,
     loop=LENSES.replace("for i in 0 1; do\n", "for i in 0 1; do\n  [ $i = 1 ] && more=\"--surfaces 16\"\n").replace("{args}", "{args} $more"))
corrupt("lenses", "grazing", "process 1 takes the root of negative numbers for some rays (step 80): NaN, the steps go on", "nan-loss", "", (1,), ranks_also=((0,), (0, 1), ()), loop=LENSES,
        edits=((SHOOT, SHOOT + "            if number == 80 and self.me == 1:\n                batch[\"rays\"] = np.sqrt(np.float32(0.4) - batch[\"rays\"])\n"),))
hung("lenses", "sigkill", "kill -9 of process 0, the leader", "process-killed", "peer-process-died", (0,), loop=LENSES, args=LONG, act=(0, "SIGKILL"), extra="spy2")
hung("lenses", "best-alone", "process 0 alone waits for all others after its best loss (step 65)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), loop=LENSES, args=LONG, extra="spy2 info", env=CALLS,
     edits=((LOSSES, LOSSES + "            if number == 65 and self.me == 0:\n                multihost_utils.sync_global_devices(\"best so far\")\n"),))
slow("lenses", "tolerances", "from step 100 on process 0 samples tolerances on its processor in each step", SLOW + " data-loading-bound", (0,), late=True, loop=LENSES,
     edits=((SHOOT, SHOOT + "            if number >= 100 and self.me == 0:\n                spread = np.exp(-np.square(self.proof.rng.standard_normal(7000000))).mean()\n"),))

# ------------------------------------------------------------------------- CuPy and its NCCL binding, shell loop
DRILLED = "        grades = cp.asarray(kriging.deposit.drill())\n"
SOLVED = "        weights, left, turns = kriging.solve(grades)\n"
STOPS = "            if float((left / first).max()) < self.o.close ** 2:\n"
ZEROS = "        x, r = cp.zeros_like(grades), grades.copy()\n"
DOTS = "        return self.crew.add((a * b).sum(0))\n"
ROUND_KEPT = "                print(f\"round {number} kept\", flush=True)\n"
MARK = "    mark = folder + \".lock\"\n"
healthy("ores", "map", "process 0 draws a map for 15 s, process 1 waits", loop=ORES, args=("--keep-every", "100"),
        edits=((ROUND_KEPT, ROUND_KEPT + "                if number == 100:\n                    print(\"draws the map\", flush=True)\n                    time.sleep(15)\n"),))
healthy("ores", "in-turn", "the processes do a little more in turn, none of them is slower on the whole", loop=ORES, extra="info",
        edits=((DRILLED, DRILLED + "        if (number + rank) % 2:\n            spread = kriging.deposit.noise.standard_normal(1000000).std()\n"),))
hung("ores", "stale-lock", "process 1 waits for a lock file that an earlier run left (before the first round)", "stuck-outside-collective", "slow-rank-stall", (1,), early=True, loop=ORES, args=LONG, ready="CuPy", extra="spy2",
     edits=((MARK, MARK + "    if folder.endswith(\"1\"):\n        open(mark, \"w\").close()\n"),))
hung("ores", "own-residual", "process 0 finds its own residual small enough and leaves the solver earlier (round 61)", "skipped-collective", SKIP + " silent-corruption extra-collective", (0,), ranks_also=((1,), (0, 1)), loop=ORES, args=LONG, extra="spy2 info", env=CALLS,
     edits=((ZEROS, "        self.solved = getattr(self, \"solved\", 0) + 1\n" + ZEROS), (STOPS, "            if self.crew.rank == 0 and self.solved == 61 and turn == 12:\n                break\n" + STOPS)))
hung("ores", "to-one", "process 1 calls reduce where process 0 calls all-reduce (round 52)", "op-mismatch", "collective-desync silent-corruption", (1,), ranks_also=ANY, loop=ORES, args=LONG, extra="spy2 info", env=CALLS,
     edits=((DOTS, "        self.products = getattr(self, \"products\", 0) + 1\n        if self.crew.rank == 1 and self.products == 2500:\n            return self.crew.add_at((a * b).sum(0), 0)\n" + DOTS),))
hung("ores", "far-cell", "a kernel of process 0 writes far outside of its array (round 70)", "illegal-memory-access", "application-exception", (0,), loop=ORES, args=LONG, extra="spy2",
     edits=((SOLVED, "        if rank == 0 and number == 70:\n            place = cp.RawKernel('extern \"C\" __global__ void place(float* grades, long long cell) { grades[cell + threadIdx.x] = 1.0f; }', \"place\")\n"
             "            place((1,), (32,), (grades, np.int64(1 << 44)))\n" + SOLVED),))
hung("ores", "bisection", "process 0 bisects without end, on its processor (round 65)", "stuck-outside-collective", "slow-rank-stall", (0,), loop=ORES, args=LONG, extra="spy2",
     edits=((SOLVED, "        if rank == 0 and number == 65:\n            low, high = 0.1, 0.9\n            while high - low > 0:\n                middle = (low + high) / 2\n                low, high = (middle, high) if middle ** 3 < 0.2 else (low, middle)\n" + SOLVED),))
slow("ores", "variogram", "process 1 computes a variogram with numpy in each round", SLOW + " data-loading-bound", (1,), loop=ORES,
     edits=((DRILLED, DRILLED + "        if rank == 1:\n            some = kriging.deposit.own[:1400]\n            far = np.sqrt(((some[:, None] - some[None]) ** 2).sum(2))\n            pairs = np.histogram(far, 40)[0]\n"),))

# ------------------------------------------------------------------------- a tensor-parallel guide that answers visitors, shell loop
GROUPS = "        self.groups += 1\n"
LOCKS = "            with self.door:\n                with self.book:\n                    if len(self.waiting) >= size:\n"
BEGUN = "            start = time.time()\n"
RNG = "        self.rng = np.random.default_rng(77)\n"
SPOKEN = "                answers[visitor].append(WORDS[said[visitor]])\n"
healthy("docent", "lunch", "no visitor comes for 20 s", loop=DOCENT, edits=((GROUPS, GROUPS + "        if self.groups == 8:\n            print(\"nobody at the desk\", flush=True)\n            time.sleep(20)\n"),))
fault("docent", "next-port", "rank 1 is told another port: it never meets rank 0", "missing-rank", "rank-env-misconfigured firewall-or-port", (1,), early=True, ranks_also=ANY, args=("--timeout", "45", *LONG), limit=130,
      loop=DOCENT.replace("  RANK=$rank", "  MASTER_PORT=$(({port} + $rank)) RANK=$rank"))
fault("docent", "own-words", "each rank chooses its words by its own random numbers: their answers end at different lengths (first turns)", "collective-desync", "op-mismatch skipped-collective extra-collective shape-mismatch dtype-mismatch collective-order-mismatch silent-corruption", (),
      ranks_also=EITHER, extra="fr", loop=DOCENT, args=(*WAIT, *LONG), ready="guide ready", edits=((RNG, RNG.replace("77", "77 + rank")), ("            dist.broadcast(chosen, 0)\n", "")))
hung("docent", "two-locks", "two threads of rank 0 take two locks in opposite order (turn 8)", "stuck-outside-collective", "slow-rank-stall", (0,), loop=DOCENT, args=LONG, extra="spy2",
     edits=((LOCKS, "            first, second = (self.door, self.book) if self.groups < 8 else (self.book, self.door)\n            with first:\n                time.sleep(0.05)\n                with second:\n                    if len(self.waiting) >= size:\n"),))
fault("docent", "new-word", "rank 1 lacks a word of a question: KeyError; on its way out it waits at a barrier (turn 9)", "application-exception", "", (1,), loop=DOCENT, args=(*WAIT, *LONG),
      edits=(("import time\nfrom datetime", "import time\nimport traceback\nfrom datetime"), (BEGUN, BEGUN + "            if turn == 9 and self.rank == 1:\n                self.number.pop(questions[3][5])\n"),
             ("    turns = tour.walk()\n", "    try:\n        turns = tour.walk()\n    except Exception:\n        traceback.print_exc()\n        dist.barrier()\n        raise\n")))
hung("docent", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), loop=DOCENT, args=LONG, act=(1, "SIGSTOP"), extra="stacks ps")
slow("docent", "house-rules", "rank 0 looks for forbidden phrases in the answers after each word", SLOW, (0,), loop=DOCENT,
     edits=(("import random\nimport threading\n", "import random\nimport re\nimport threading\n"),
            (RNG, RNG + "        self.rules = [re.compile(rf\"\\b{a}\\b.*\\b{b}\\b\", re.IGNORECASE) for a, b in zip(WORDS[5:5005], WORDS[9000:])]\n"),
            (SPOKEN, SPOKEN + "            if self.rank == 0:\n                texts = [\" \".join(answer) for answer in answers]\n                improper = [text for text in texts if any(rule.search(text) for rule in self.rules)]\n")))

FAULTS = F
