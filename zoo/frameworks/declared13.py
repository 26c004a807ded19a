"""A thirteenth set of jobs and faults: two ranks each, on two GPUs. The same plain data as declared.py. All jobs end by themselves after --minutes.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, Fault, Job

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
    fault(job, "healthy-" + name, says, "none", extra=extra, **{"limit": 240, **more})


def slow(job, name, says, also="", ranks=(), **more):
    fault(job, name, says + "; the job runs on", "straggler", also, ranks, category="performance", **{"limit": 220, **more})


def corrupt(job, name, says, cause, also="", ranks=(), **more):
    """Nothing stops: the numbers are wrong."""
    fault(job, name, says, cause, also, ranks, category="corruption", **{"limit": 220, **more})


JOBS = [
    Job("foodweb", "f13_foodweb.py", "predators.py", "webs", "loop", r"step 20 loss"),
    Job("knit", "f13_knit.py", "knit.py", "wool", "torchrun", r"step 20 loss"),
    Job("harbour", "f13_harbour.py", "route.py", "ais", "torchrun", r"step 20 loss"),
    Job("scrawl", "f13_scrawl.py", "read_lines.py", "handwriting", "accelerate", r"step 20 loss", packages=("accelerate", "torch")),
    Job("wildfire", "f13_wildfire.py", "spread.py", "fires", "python", r"update 20 loss", packages=("lightning", "torch")),
    Job("hives", "f13_hives.py", "swarm.py", "bees", "loop", r"step 20 loss", packages=("jax",)),
    Job("perfume", "f13_perfume.py", "notes.py", "scents", "loop", r"round 20 missing", packages=("cupy",)),
    Job("mazes", "f13_mazes.py", "wander.py", "mazes", "python", r"round 20 loss"),
]

FOODWEB = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nfor rank in 0 1; do\n"
           "  RANK=$rank LOCAL_RANK=$rank python -u {script} {args} > logs/rank$rank.log 2>&1 &\ndone\nwait\n")
HIVES = ("for i in 0 1; do\n  LOCAL_RANK=$i python -u {script} --coordinator 127.0.0.1:{port} --process-id $i {args} > logs/swarm-$i.log 2>&1 &\ndone\nwait\n")
PERFUME = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --rank $r --ranks 2 --port {port} {args} > logs/notes.$r.txt 2>&1 &\ndone\nwait\n")

WAIT = ("--timeout", "30")
LONG = ("--minutes", "20")
CALLS = (("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),)

# ------------------------------------------------------------------------- a graph, features spread over the ranks, all-to-all and DDP, shell loop
SEEDS = "    seeds = rng.integers(0, web.species, batch)\n"
ASKED = "        owner = ids % self.world\n"
TOOK = "        nodes, where, sizes, truth = prepare(web, rng, o.batch, o.fans)\n        guess = forward(net, shards,"
healthy("foodweb", "long-test", "every test takes longer than the training before it", loop=FOODWEB, args=("--eval-batches", "500", "--eval-every", "200"))
healthy("foodweb", "any-number", "each rank takes another number of species in each step", loop=FOODWEB, extra="info",
        edits=((SEEDS, SEEDS.replace("batch)", "int(batch * rng.uniform(0.6, 1.4)))")),))
fault("foodweb", "known", "rank 1 knows all features of a step already and does not ask for them (step 60)", "skipped-collective", SKIP + " silent-corruption", (1,), ranks_also=((0,), (0, 1)), extra="fr", loop=FOODWEB, args=(*WAIT, *LONG),
      edits=((ASKED, "        if self.rank == 1 and self.calls == 60:\n            return self.kept[:1].expand(len(ids), -1).contiguous()\n" + ASKED),
             ("        features[order] = torch.cat(answers)\n", "        features[order] = torch.cat(answers)\n        self.kept = features\n")))
fault("foodweb", "roots", "each rank adds the loss up for itself: reduce with another root (step 5)", "op-mismatch", "collective-desync silent-corruption", (1,), early=True, ranks_also=ANY, extra="fr", loop=FOODWEB, args=(*WAIT, *LONG), ready="species on",
      edits=(("            dist.reduce(total, dst=0)\n", "            dist.reduce(total, dst=rank)\n"),))
fault("foodweb", "lost-species", "a species of rank 0 is not in the table: IndexError (step 70)", "application-exception", "", (0,), loop=FOODWEB, args=(*WAIT, *LONG),
      edits=((TOOK, "        if step == 70 and rank == 0:\n            web.prey[rng.integers(0, web.species, 50000)] += web.species\n" + TOOK),))
fault("foodweb", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), loop=FOODWEB, args=(*WAIT, *LONG), act=(1, "SIGKILL"), extra="fr")
fault("foodweb", "world-three", "WORLD_SIZE is 3, two processes are started", "rank-env-misconfigured", "missing-rank", (), early=True, ranks_also=(*EITHER, (2,)), loop=FOODWEB.replace("WORLD_SIZE=2", "WORLD_SIZE=3"), args=("--timeout", "45"), limit=120)
slow("foodweb", "journal", "from step 120 on rank 0 writes its own species of each step to a JSON file", SLOW + " sync-stalls", (0,), loop=FOODWEB,
     edits=((TOOK, TOOK.replace("        guess", "        if rank == 0 and step >= 120:\n            with open(\"visited.json\", \"w\") as file:\n                json.dump(nodes[nodes % world == rank].tolist(), file)\n        guess")),))
slow("foodweb", "wide-rings", "rank 1 is set to two thirds more neighbours in the second ring", "data-loading-bound " + SLOW, (1,), loop=FOODWEB,
     edits=((TOOK, TOOK.replace("o.fans)", "o.fans if rank == 0 else [8, 10])")),))

# ------------------------------------------------------------------------- a decoder with FSDP2, micro-batches, distributed checkpoints, torchrun
NEXT = "        return next(self.batches).to(self.device, non_blocking=True)\n"
PARTS = "        for part in range(self.o.parts):\n"
UPDATE = "            loss = self.update()\n"
LOGITS = "    logits = net(ids[:, :-1])\n"
ROWS = "            yield torch.tensor([WORD_ID[w] for w in self.pattern(rng)])\n"
healthy("knit", "compile", "every block is compiled with torch.compile", args=("--compile",))
healthy("knit", "rereads", "the file server resets the connection at times: tracebacks, the second try succeeds",
        edits=(("import time\nfrom datetime", "import time\nimport traceback\nfrom datetime"),
               (NEXT, "        for attempt in range(3):\n            try:\n                if self.rank == 1 and attempt < 1 and random.random() < 0.004:\n                    raise ConnectionResetError(104, \"Connection reset by peer\")\n                break\n"
                "            except ConnectionResetError:\n                traceback.print_exc()\n                print(f\"ERROR reading shard, attempt {attempt + 1} of 3 failed, retrying\", flush=True)\n                time.sleep(0.3)\n" + NEXT)))
fault("knit", "third-part", "rank 1 adds a third micro-batch to a step (step 50)", "extra-collective", EXTRA, (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((PARTS, "        parts = self.o.parts\n        if self.rank == 1 and self.step == 50:\n            parts += 1\n" + PARTS.replace("self.o.parts", "parts")),))
fault("knit", "own-patience", "rank 0 alone finds that its loss falls no more, stops training and saves (step 60)", "skipped-collective", SKIP + " extra-collective rank-exited-early", (0,), ranks_also=((1,), (0, 1)), extra="fr spy2", args=(*WAIT, *LONG),
      edits=((UPDATE, UPDATE + "            if self.rank == 0 and self.step == 60:\n                self.note(\"loss no better for 50 steps, stops\")\n                break\n"),))
fault("knit", "all-pairs", "rank 0 compares all words of two passes with each other: no memory (step 45)", "cuda-oom", "application-exception", (0,), args=("--timeout", "60", *LONG),
      edits=((LOGITS, LOGITS + "    language_loss.calls = getattr(language_loss, \"calls\", 0) + 1\n    if language_loss.calls == 90 and dist.get_rank() == 0:\n        seen = torch.cat([logits, logits.roll(1, 1)]).float().flatten(0, 1)\n        alike = (seen[:, None] - seen[None]).abs().mean(-1)\n"),))
fault("knit", "unknown-stitch", "a pattern of rank 1 has a stitch that is no word: KeyError in a data-loader worker, in all three attempts", "application-exception", "", (1,), restarts=2, limit=230, args=(*WAIT, *LONG),
      edits=(("        rng = random.Random(1000 * self.seed + (info.id if info else 0))\n", "        rng, made = random.Random(1000 * self.seed + (info.id if info else 0)), 0\n"),
             (ROWS, "            made += 1\n            if made == 500 and self.seed == 1:\n                yield torch.tensor([WORD_ID[w] for w in self.row(rng, [\"brk\"] * 6)])\n" + ROWS)))
hung("knit", "second-node", "the launcher is told of two nodes, the second one is never started", "missing-rank", "rank-env-misconfigured launcher-failure", (), early=True, ranks_also=(*EITHER, (2, 3)), args=LONG,
     flags=("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port={port}"))
slow("knit", "stitch-counts", "rank 1 counts stitches with regular expressions in each batch", SLOW + " data-loading-bound", (1,),
     edits=(("import random\nimport time\n", "import random\nimport re\nimport time\n"),
            (NEXT, "        ids = next(self.batches)\n        if self.rank == 1:\n            text = \" \".join(WORDS[i] for i in ids.flatten().tolist())\n            counts = {s: sum(map(int, re.findall(rf\"\\b{s}(\\d+)\\b\", text))) for s in STITCHES}\n        return ids.to(self.device, non_blocking=True)\n")))
slow("knit", "own-shard", "from step 100 on rank 0 saves its part of the weights every fourth step", SLOW + " sync-stalls storage-failure transfer-bound", (0,),
     edits=((UPDATE, UPDATE + "            if self.rank == 0 and self.step >= 100 and self.step % 4 == 0:\n                torch.save({name: w.detach().to_local().cpu() for name, w in self.net.named_parameters()}, \"newest.pt\")\n"),))

# ------------------------------------------------------------------------- two stages with torch.distributed.pipelining, torchrun
DRAWN = "        past, future = self.tracks.at(number)\n        losses = []\n"
STEPPED = "            loss = self.train_step(number)\n"
START = "        number = 0\n        while True:\n"
TRACKS = "        self.tracks, self.checks = Tracks(o.seed,"
healthy("harbour", "charts", "rank 1 reads its charts for 20 s before the first step, rank 0 waits", edits=((START, "        if self.rank == 1:\n            log.info(\"reads charts\")\n            time.sleep(20)\n" + START),))
healthy("harbour", "many-checks", "another schedule, and a check that takes about as long as the training between two of them", args=("--schedule", "gpipe", "--checks", "500", "--check-every", "200"))
fault("harbour", "extra-check", "stage 0 alone begins a check: sends that nobody receives (step 75)", "unmatched-p2p", "extra-collective skipped-collective collective-desync", (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG, "--check-every", "50"),
      edits=((STEPPED, STEPPED + "            if number == 75 and self.rank == 0:\n                self.check(2)\n"),))
hung("harbour", "question", "stage 1 asks at the terminal whether it shall go on (step 55)", "stuck-outside-collective", "slow-rank-stall", (1,), stdin="pipe", extra="spy2", args=LONG,
     edits=((STEPPED, STEPPED + "            if number == 55 and self.rank == 1:\n                if input(\"loss is high, go on? [y/n] \") == \"n\":\n                    break\n"),))
fault("harbour", "null-chart", "a native reader of stage 0 follows a null pointer (step 60)", "process-crashed", "process-killed peer-process-died", (0,), args=(*WAIT, *LONG), extra="fr",
      edits=(("import argparse\nimport datetime\n", "import argparse\nimport ctypes\nimport datetime\n"), (DRAWN, DRAWN + "        if number == 60 and self.rank == 0:\n            header = (ctypes.c_int * 4).from_address(64)[0]\n")))
hung("harbour", "schedules", "stage 1 follows GPipe, stage 0 one forward, one backward (first step)", "deadlock-cycle", "unmatched-p2p collective-order-mismatch collective-desync op-mismatch", (0, 1), early=True, ranks_also=ANY, extra="spy2 fr", args=LONG, ready="stage 0 of 2",
     edits=(("SCHEDULES[o.schedule](self.stage", "SCHEDULES[o.schedule if rank == 0 else \"gpipe\"](self.stage"),))
corrupt("harbour", "other-tracks", "the stages draw from different seeds: the past of some ships, the future of others", "silent-corruption", "undecided", (), early=True, ranks_also=ANY, edits=((TRACKS, TRACKS.replace("o.seed", "o.seed + rank")),))
slow("harbour", "archive", "from step 120 on stage 0 compresses the tracks of each step", "pipeline-bubble data-loading-bound sync-stalls " + SLOW, (0,),
     edits=(("import argparse\nimport datetime\n", "import argparse\nimport bz2\nimport datetime\n"), (DRAWN, DRAWN + "        if self.rank == 0 and number >= 120:\n            packed = bz2.compress(past.numpy().tobytes())\n")))
slow("harbour", "encounters", "stage 1 looks in Python for ships that come close to each other", "pipeline-bubble data-loading-bound sync-stalls " + SLOW, (1,),
     edits=((DRAWN, DRAWN + "        if self.rank == 1:\n            close = 0\n            for moment in future[:, ::2].transpose(0, 1).tolist():\n                for i, (x, y) in enumerate(moment):\n"
             "                    close += sum(abs(x - a) + abs(y - b) < 0.05 for a, b in moment[:i])\n"),))

# ------------------------------------------------------------------------- CTC with Hugging Face Accelerate, accelerate launch
FORWARD = "            logits = net(batch[\"image\"])\n"
CTC = "            loss = ctc(logits, batch[\"label\"], batch[\"length\"])\n"
STEPS = "            optimizer.zero_grad()\n"
STATED = "                log(f\"step {step} saved\")\n"
healthy("scrawl", "widths", "the ranks read lines of other widths in each step", edits=((FORWARD, FORWARD.replace("[\"image\"]", "[\"image\"][..., :128 * (2 + (7 * step + accelerator.process_index) % 3)]")),))
healthy("scrawl", "backup", "the main process copies a checkpoint to the archive for 20 s, the other one waits", args=("--save-every", "150"),
        edits=((STATED, STATED + "                if step == 150 and accelerator.is_main_process:\n                    print(\"copies out/state to the archive\", flush=True)\n                    time.sleep(20)\n"),))
fault("scrawl", "main-gather", "the main process alone gathers the losses (step 40)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((STEPS, STEPS + "            if accelerator.is_main_process and step == 40:\n                spread = accelerator.gather(loss.detach().reshape(1)).std().item()\n"),))
hung("scrawl", "empty-lines", "process 1 goes on to the next batch when one has an empty line (step 57)", "skipped-collective", SKIP + " silent-corruption", (1,), ranks_also=((0,), (0, 1)), extra="spy2 fr", args=LONG,
     edits=((FORWARD, "            if step == 57 and accelerator.process_index == 1:\n                print(\"empty line, next batch\", flush=True)\n                continue\n" + FORWARD),))
fault("scrawl", "new-letter", "a line of process 0 has a letter outside the alphabet (step 90)", "device-assert", "application-exception", (0,), args=(*WAIT, *LONG),
      edits=((CTC, "            if accelerator.is_main_process and step == 90:\n                batch[\"label\"][3, 5] = len(ALPHABET) + 1\n            often = torch.ones(len(ALPHABET) + 1, device=accelerator.device)[batch[\"label\"]].mean()\n" + CTC),))
fault("scrawl", "worker-killed", "kill -9 of a data-loader worker of rank 1", "process-killed", "application-exception oom-killed", (1,), args=(*WAIT, *LONG), act=("worker 1", "SIGKILL"))
corrupt("scrawl", "same-lines", "the loader is not prepared: both processes read the same lines in the same order", "silent-corruption", "undecided", (), early=True, ranks_also=ANY,
        edits=(("    net, optimizer, train, val, warm = accelerator.prepare(net, optimizer, train, val, warm)\n", "    net, optimizer, val, warm = accelerator.prepare(net, optimizer, val, warm)\n"),
               (FORWARD, "            batch = {name: x.to(accelerator.device, non_blocking=True) for name, x in batch.items()}\n" + FORWARD),
               (STEPS, STEPS + "            if step % 20 == 0:\n                print(f\"process {accelerator.process_index} step {step} first label {batch['label'][0, :6].tolist()} own {loss.item():.6f}\", flush=True)\n")))
slow("scrawl", "duplicates", "from step 100 on the main process looks for near-duplicates among the lines of each batch", SLOW + " sync-stalls", (0,),
     edits=((CTC, CTC + "            if accelerator.is_main_process and step >= 100:\n                texts = [row[:n] for row, n in zip(batch[\"label\"].tolist(), batch[\"length\"].tolist())]\n"
             "                alike = min(edits(a, b) for shift in (1, 2) for a, b in zip(texts, texts[shift:]))\n"),))
slow("scrawl", "empty-cache", "process 1 empties the cache of the allocator after each step", "allocator-stalls sync-stalls " + SLOW, (1,),
     edits=((STEPS, STEPS + "            if accelerator.process_index == 1:\n                del logits\n                torch.cuda.empty_cache()\n"),))

# ------------------------------------------------------------------------- Lightning, starts its own ranks
COUNTED = "        self.losses.append(module.last_loss)\n"
CROPPED = "        return self.land[:, top:top + EDGE, left:left + EDGE].copy()\n"
IMPORTS = "import argparse\nimport datetime\nimport time\n"
WAIT_FIRES = ("--timeout", "50")
healthy("wildfire", "long-validation", "a validation takes longer than the training before it", args=("--val-fires", "40000", "--val-every", "300"))
fault("wildfire", "one-stops", "rank 1 alone asks the trainer to stop, after its loss became small (update 70)", "skipped-collective", SKIP + " rank-exited-early extra-collective", (1,), ranks_also=((0,), (0, 1)), extra="fr", args=(*WAIT_FIRES, *LONG), limit=190,
      edits=((COUNTED, COUNTED + "        if trainer.global_rank == 1 and self.count == 70:\n            print(\"loss is small enough\", flush=True)\n            trainer.should_stop = True\n"),))
hung("wildfire", "twice-locked", "a callback of rank 0 takes a lock that it holds already (update 60)", "stuck-outside-collective", "slow-rank-stall", (0,), extra="spy2", args=LONG, limit=180,
     edits=((IMPORTS, IMPORTS.replace("import time\n", "import threading\nimport time\n")), ("        self.o, self.count, self.losses = o, 0, []\n", "        self.o, self.count, self.losses = o, 0, []\n        self.lock = threading.Lock()\n"),
            (COUNTED, "        with self.lock:\n            self.append(module)\n            if trainer.is_global_zero and self.count == 60:\n                self.flush()\n"),
            ("    def on_validation_end(", "    def append(self, module):\n        self.losses.append(module.last_loss)\n\n    def flush(self):\n        with self.lock:\n            self.losses = self.losses[-100:]\n\n    def on_validation_end(")))
hung("wildfire", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=LONG, act=(1, "SIGSTOP"), extra="stacks ps", limit=180)
fault("wildfire", "disk-full", "the file system of the checkpoints is full (update 60)", "storage-failure", "application-exception", (0,), ranks_also=((0, 1),), tmpfs=(("weights", "6m"),), args=(*WAIT_FIRES, *LONG, "--save-every", "60"), limit=180)
fault("wildfire", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, ranks_also=((0,), (0, 1)), port_taken=True, limit=120, args=("--timeout", "40"))
slow("wildfire", "larger-batches", "rank 1 has batches of 32 maps, rank 0 of 20", "load-imbalance data-loading-bound", (1,), args=("--fires", "400000"),
     edits=(("        return DataLoader(self.train, self.o.batch, shuffle", "        return DataLoader(self.train, self.o.batch if self.trainer.global_rank == 0 else 32, shuffle"),))
slow("wildfire", "smoothing", "the data-loader workers of rank 1 smooth the weather with Fourier transforms", "data-loading-bound " + SLOW, (1,),
     edits=((IMPORTS, IMPORTS.replace("import time\n", "import os\nimport time\n")),
            (CROPPED, "        if os.environ.get(\"LOCAL_RANK\") == \"1\":\n            for _ in range(3):\n                waves = np.fft.fft2(self.land[:, top:top + EDGE, left:left + EDGE])\n                smooth = np.fft.ifft2(waves * np.exp(-np.hypot(*np.mgrid[-64:64, -64:64]))).real\n" + CROPPED)))

# ------------------------------------------------------------------------- JAX, shard_map over processes, shell loop
BATCH = "            batch = self.apiary.draw()\n"
KEPT = "            losses.append(float(loss))\n"
healthy("hives", "unpacks", "process 1 unpacks more records for 20 s, process 0 waits", loop=HIVES, edits=((BATCH, "            if step == 120 and self.me == 1:\n                self.print(\"unpacks records of 2023\")\n                time.sleep(20)\n" + BATCH),))
healthy("hives", "long-test", "a test takes much longer than the training between two of them", loop=HIVES, args=("--test-batches", "1500", "--test-every", "300"), extra="warn")
hung("hives", "no-records", "process 1 leaves out a step without records (step 70)", "skipped-collective", SKIP + " silent-corruption extra-collective", (1,), ranks_also=((0,), (0, 1)), loop=HIVES, args=LONG, extra="spy2 info", env=CALLS,
     edits=((BATCH, BATCH + "            if step == 70 and self.me == 1:\n                self.print(\"step 70: no records\")\n                continue\n"),))
hung("hives", "uploader", "process 0 waits for a process that waits for a file (step 65)", "stuck-outside-collective", "slow-rank-stall storage-failure", (0,), loop=HIVES, args=LONG, extra="spy2",
     edits=(("import os\nimport time\n", "import os\nimport subprocess\nimport time\n"),
            (KEPT, KEPT + "            if step == 65 and self.me == 0:\n                subprocess.run([\"timeout\", \"400\", \"sh\", \"-c\", \"while [ ! -e upload.done ]; do sleep 1; done\"])\n")))
hung("hives", "sigabrt", "SIGABRT of process 1", "process-crashed", "process-killed peer-process-died", (1,), loop=HIVES, args=LONG, act=(1, "SIGABRT"), extra="spy2")
hung("hives", "short-year", "a sensor of process 0 has fewer hours: ValueError (step 75)", "application-exception", "", (0,), loop=HIVES, args=LONG, extra="spy2",
     edits=((BATCH, BATCH + "            if step == 75 and self.me == 0:\n                batch[\"records\"][:, :, 3] = batch[\"records\"][:, :-12, 3]\n"),))
fault("hives", "same-number", "both processes are told that they are process 0", "rank-env-misconfigured", "missing-rank port-in-use application-exception process-crashed", (), early=True, ranks_also=ANY, loop=HIVES.replace("--process-id $i", "--process-id 0"), args=("--patience", "40"), limit=130)
corrupt("hives", "own-weights", "each process starts from weights of its own, which should be the same", "silent-corruption", "undecided", (), early=True, ranks_also=ANY, loop=HIVES,
        edits=(("        weights = create(o.seed, o.dim", "        weights = create(o.seed + self.me, o.dim"),
               (KEPT, KEPT + "            if step % 20 == 0:\n                self.print(f\"step {step} sum of weights {float(np.abs(np.asarray(self.params['wide'].addressable_data(0)[0])).sum()):.4f}\")\n")))
slow("hives", "trends", "from step 150 on process 1 fits a trend to each sensor of its hives in each step", SLOW + " data-loading-bound", (1,), loop=HIVES,
     edits=((BATCH, BATCH + "            if step >= 150 and self.me == 1:\n                hours = np.arange(self.o.hours)\n                trends = [np.polyfit(hours, hive[:, sensor], 3) for hive in batch[\"records\"] for sensor in range(8)]\n"),))

# ------------------------------------------------------------------------- CuPy and its NCCL binding, shell loop
ROUND = "        factors.round()\n"
NAMED = "                print(f\"round {number} strongest {names}\", flush=True)\n"
healthy("perfume", "report", "process 0 writes a report for 20 s, process 1 waits", loop=PERFUME, edits=((NAMED, NAMED + "                if number == 100:\n                    print(\"writes the report\", flush=True)\n                    time.sleep(20)\n"),))
healthy("perfume", "fewer-rows", "process 1 has a twelfth fewer spectra", loop=PERFUME, extra="info", edits=(("Spectra(o.rows, ", "Spectra(o.rows - 5000 * o.rank, "),))
hung("perfume", "good-enough", "process 1 finds its part good enough and ends with code 0 (round 70)", "rank-exited-early", "skipped-collective uneven-inputs", (1,), loop=PERFUME, args=LONG, extra="spy2 info", env=CALLS,
     edits=((ROUND, ROUND + "        if rank == 1 and number == 70:\n            print(\"process 1: change below 1e-4\", flush=True)\n            return number\n"),))
hung("perfume", "fewer-factors", "process 1 is started with fewer factors (before the first round)", "shape-mismatch", "rank-env-misconfigured " + SIZES, (1,), early=True, ranks_also=ANY, args=LONG, ready="GPU", extra="spy2 info", env=CALLS,
     loop=PERFUME.replace("for r in 0 1; do\n", "for r in 0 1; do\n  [ $r = 1 ] && more=\"--factors 192\"\n").replace("{args}", "{args} $more"))
hung("perfume", "all-distances", "process 1 takes the distances of all spectra to all factors at once: no memory (round 60)", "cuda-oom", "application-exception", (1,), loop=PERFUME, args=LONG, extra="spy2",
     edits=((ROUND, ROUND + "        if rank == 1 and number == 60:\n            far = ((factors.spectra.x[:, None] - factors.h[None]) ** 2).sum(2)\n"),))
hung("perfume", "wrong-host", "process 1 is told a host name that does not exist", "hostname-resolution", "missing-rank rank-env-misconfigured application-exception", (1,), early=True, ranks_also=ANY, args=LONG, ready="GPU", extra="spy2", limit=140,
     loop=PERFUME.replace("for r in 0 1; do\n", "for r in 0 1; do\n  [ $r = 1 ] && more=\"--host scents-a01.cluster.invalid\"\n").replace("{args}", "{args} $more"))
corrupt("perfume", "no-amounts", "process 0 divides each row by its sum, one row is zero (round 80): NaN, the rounds go on", "nan-loss", "", (0,), ranks_also=((1,), (0, 1), ()), loop=PERFUME,
        edits=((ROUND, "        if rank == 0 and number == 80:\n            factors.w[1234] = 0\n            factors.w /= factors.w.sum(1, keepdims=True)\n" + ROUND),))
slow("perfume", "ranking", "process 1 copies three factors to the host in each round and sorts them", "transfer-bound sync-stalls " + SLOW, (1,), loop=PERFUME,
     edits=((ROUND, ROUND + "        if rank == 1:\n            for k in range(3):\n                best = np.argsort(factors.w[:, k].get(), kind=\"stable\")\n"),))
slow("perfume", "worst", "from round 200 on process 0 looks for its worst spectra in each round, on the GPU", "load-imbalance sync-stalls", (0,), loop=PERFUME,
     edits=((ROUND, ROUND + "        if rank == 0 and number >= 200:\n            for start in range(0, factors.spectra.rows, 8192):\n                part = slice(start, start + 8192)\n"
             "                worst = ((factors.spectra.x[part] - factors.w[part] @ factors.h) ** 2).sum(1).max()\n"),))

# ------------------------------------------------------------------------- reinforcement learning, torch.multiprocessing starts the ranks
PLAYED = "            kept, last = self.play()\n"
LEARNT = "            loss = self.learn(kept, last)\n"
BETTER = "                self.best = max(self.best, share)\n"
GRADIENT = "            average_gradients(self.net, self.world)\n"
MOVED = "            reward, over = self.mazes.move(action.cpu().numpy())\n"
healthy("mazes", "board", "the score board does not answer at times: tracebacks, the next try succeeds",
        edits=(("import os\nimport time\n", "import os\nimport time\nimport traceback\n"),
               (BETTER, BETTER + "                if self.rank == 0 and number % 60 == 0:\n                    try:\n                        raise BrokenPipeError(32, \"Broken pipe\")\n                    except BrokenPipeError:\n"
                "                        traceback.print_exc()\n                        print(\"WARNING score board: connection lost, reconnecting in 1 s\", flush=True)\n                        time.sleep(1)\n")))
fault("mazes", "champion", "rank 0 alone sends its best policy to all (round 45)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((BETTER, BETTER + "                if self.rank == 0 and number == 45:\n                    dist.broadcast_object_list([{name: w.cpu() for name, w in self.net.state_dict().items()}], src=0)\n"),))
fault("mazes", "swallowed", "an exception in the update of rank 0 is caught, the minibatch left out (round 50)", "skipped-collective", SKIP + " application-exception silent-corruption", (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((GRADIENT, "            try:\n                self.updates = getattr(self, \"updates\", 0) + 1\n                if self.rank == 0 and self.updates == 50 * self.o.parts:\n                    raise FloatingPointError(\"ratio out of range\")\n"
              "            except FloatingPointError as error:\n                print(f\"rank {self.rank}: {error}, minibatch left out\", flush=True)\n                continue\n" + GRADIENT),))
fault("mazes", "fifth-move", "a game of rank 1 gets a move that does not exist: IndexError (round 30)", "application-exception", "", (1,), args=(*WAIT, *LONG),
      edits=((MOVED, "            self.moves = getattr(self, \"moves\", 0) + 1\n            if self.rank == 1 and self.moves == 30 * self.o.stretch:\n                action[7] = 4\n" + MOVED),))
fault("mazes", "exit-code", "rank 0 gives up with exit code 3 (round 50)", "application-exception", "rank-exited-early", (0,), args=(*WAIT, *LONG),
      edits=(("import os\nimport time\n", "import os\nimport sys\nimport time\n"), (LEARNT, LEARNT + "            if number == 50 and self.rank == 0:\n                print(\"reward too low, gives up\", flush=True)\n                sys.exit(3)\n")))
fault("mazes", "same-gpu", "both ranks take the first GPU", "duplicate-gpu", "rank-env-misconfigured", (), early=True, ranks_also=EITHER, extra="warn", limit=120, args=WAIT,
      edits=(("torch.device(\"cuda\", rank) if cuda", "torch.device(\"cuda\", 0) if cuda"),))
corrupt("mazes", "same-mazes", "both ranks play the same mazes with the same moves", "silent-corruption", "undecided", (), early=True, ranks_also=ANY,
        edits=(("Mazes(o.games, o.edge, [o.seed, rank])", "Mazes(o.games, o.edge, o.seed)"), (BETTER, BETTER + "                if self.rank == 0 and number % 20 == 0:\n                    print(f\"by rank {entries}\", flush=True)\n")))
slow("mazes", "replays", "from round 60 on rank 1 packs the mazes of some games in each round", "transfer-bound sync-stalls " + SLOW, (1,),
     edits=(("import os\nimport time\n", "import os\nimport time\nimport zlib\n"),
            (PLAYED, PLAYED + "            if self.rank == 1 and number >= 60:\n                with open(\"replay.bin\", \"wb\") as file:\n                    file.write(zlib.compress(kept[\"planes\"][:, :24].cpu().numpy().tobytes()))\n")))

FAULTS = F
