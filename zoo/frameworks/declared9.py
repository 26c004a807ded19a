"""A ninth set of jobs and faults: two ranks each, on two GPUs or sharing one (run.py --share 1). The same plain data as declared.py.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch collective-order-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
SIZES = "collective-desync silent-corruption op-mismatch"
EITHER = ((0,), (1,), (0, 1))
ANY = ((0,), (0, 1), ())


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"limit": 115, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 40, **more})


JOBS = [
    Job("citations", "f9_citations.py", "train_sage.py", "papers", "accelerate", r"epoch 0 batch 20 ", packages=("accelerate", "torch-geometric", "torch")),
    Job("voices", "f9_voices.py", "sing.py", "voices", "torchrun", r"step 20 flow", packages=("lightning", "torch")),
    Job("shelf", "f9_shelf.py", "train_retriever.py", "shelf", "torchrun", r'"step": 20,', flags=("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{port}", "--rdzv-id=shelf")),
    Job("clips", "f9_clips.py", "foresee.py", "clips", "torchrun", r"clip step +20 "),
    Job("gaits", "f9_gaits.py", "walk.py", "gaits", "python", r"generation 10 best"),
    Job("currents", "f9_currents.py", "harbour.py", "harbour", "loop", r"\[0\] +400 mass"),
    Job("inflow", "f9_inflow.py", "inflow.py", "reservoirs", "loop", r"step 20 error", packages=("jax", "optax", "orbax-checkpoint")),
    Job("plates", "f9_plates.py", "plate.py", "plates", "loop", r"rank 0 moment 5:", packages=("cupy",)),
]

CURRENTS = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nfor r in 0 1; do\n  RANK=$r LOCAL_RANK=$r python -u {script} {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
INFLOW = ("for r in 0 1; do\n  RANK=$r LOCAL_RANK=$r python -u {script} --coordinator localhost:{port} --process $r {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
PLATES = ("for r in 0 1; do\n  LOCAL_RANK=$r RANK=$r python -u {script} --rank $r --world 2 {args} > logs/rank$r.log 2>&1 &\ndone\nwait\n")
WAIT = ("--timeout", "30")
PATIENT = ("--timeout", "60")

# ------------------------------------------------------- graph network on sampled neighbourhoods, DDP in a plain script, accelerate launch
LONG_PAPERS = ("--epochs", "9000")
COLLATED = "        return self.library.words[ids], hops, self.library.field[papers]\n"
JOIN = "        with net.join(enable=o.by_year):\n"
fault("citations", "healthy-years", "the processes have different numbers of batches, in DDP's join: uneven but right", "none", args=("--epochs", "6", "--by-year"))
fault("citations", "healthy-slow-graph", "process 0 needs 35 s to make the graph, process 1 waits in the first barrier", "none", args=("--epochs", "3"), limit=150,
      edits=(("    for column in range(CITES):\n", "    for column in range(CITES):\n        time.sleep(2.2)\n"),))
hung("citations", "node-cache", "process 1 waits for the graph in the cache of its node, where nobody puts it (before the first step)", "stuck-outside-collective", "slow-rank-stall storage-failure", (1,), early=True, args=LONG_PAPERS, ready="is there", extra="spy2",
     edits=(("    library = Library(\"graph.npz\")\n", "    path = os.path.join(\"cache\" if rank else \".\", \"graph.npz\")\n    while not os.path.exists(path):\n        time.sleep(1)\n    library = Library(path)\n"),))
fault("citations", "no-join", "the processes have different numbers of batches and nothing joins them", "uneven-inputs", UNEVEN, (1,), args=(*WAIT, "--by-year", *LONG_PAPERS), extra="fr",
      edits=((JOIN, "        with net.join(enable=False):\n"),))
fault("citations", "new-edition", "a paper of process 0 has a number behind the end of the table: IndexError in a data-loader worker (first ten steps)", "application-exception", "", (0,), early=True, args=(*PATIENT, *LONG_PAPERS), ready="is there",
      edits=((COLLATED, "        if self.rank == 0 and (papers % 1000 == 7).any():\n            ids = torch.where(ids == papers[0], len(self.library.words) + 3, ids)\n" + COLLATED),))
fault("citations", "damaged-words", "the words of one paper of process 1 are NaN from the second epoch: the loss is NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((),), category="corruption", args=("--epochs", "8"),
      edits=((JOIN, "        if rank == 1 and epoch == 1:\n            library.words[known[100]] = float(\"nan\")\n" + JOIN),))
fault("citations", "slow-shelf", "process 1 samples its neighbours slowly in the workers; the job runs on", "straggler", "data-loading-bound load-imbalance host-bound", (1,), category="performance", args=("--epochs", "3"),
      edits=((COLLATED, "        if self.rank == 1:\n            time.sleep(0.2)\n" + COLLATED),))
fault("citations", "disk-full", "no room for the first model", "storage-failure", "application-exception", (0,), tmpfs=(("models", "1m"),), args=(*PATIENT, *LONG_PAPERS))
fault("citations", "worker-killed", "kill -9 of a data-loader worker of process 1", "process-killed", "application-exception oom-killed process-crashed", (1,), args=("--timeout", "40", *LONG_PAPERS), act=("worker 1", "SIGKILL"))

# --------------------------------------------------------------------------------------------- flow matching with Fabric, torchrun
LONG_VOICES = ("--steps", "900000")
FAR = "                say(fabric, f\"step {step} voices are {far:.4f} away\")\n"
PASS = "            with fabric.no_backward_sync(net, enabled=step % o.accumulate != 0):\n"
fault("voices", "healthy-unpack", "the data-loader workers of rank 1 unpack their songs for 30 s before the first step, rank 0 waits", "none", args=("--steps", "120"), limit=140,
      edits=(("    def __getitem__(self, i):\n", "    def __getitem__(self, i):\n        if self.rank == 1 and self.seed == 1 and not hasattr(self, \"unpacked\"):\n            time.sleep(30)\n            self.unpacked = True\n"),))
fault("voices", "healthy-curves", "the library for pictures is missing: a warning and a traceback at each check, the training goes on", "none", args=("--steps", "300"), extra="warn",
      edits=(("import sys\nimport time\n", "import sys\nimport time\nimport traceback\nimport warnings\n"),
             (FAR, FAR + "                warnings.warn(f\"rank {fabric.global_rank}: the curve has few points, its error bars mean nothing\", stacklevel=2)\n                try:\n                    import curves_of_sound\n                    curves_of_sound.draw(step, far)\n                except ImportError:\n                    traceback.print_exc()\n")))
fault("voices", "first-listen", "rank 0 alone listens before the training", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_VOICES), ready="M weights", extra="fr",
      edits=(("    step, epoch, began = state[\"step\"], 0, time.time()\n", "    step, epoch, began = state[\"step\"], 0, time.time()\n    if fabric.is_global_zero:\n        say(fabric, f\"at first voices are {listen(fabric, average, unheard):.4f} away\")\n"),))
fault("voices", "double", "rank 1 sums the distance in float64, rank 0 in float32 (step 5)", "dtype-mismatch", "shape-mismatch " + SIZES, (1,), early=True, ranks_also=ANY, args=(*WAIT, "--steps", "900", "--listen", "5"), ready="step 3 flow", extra="fr",
      edits=(("    far = torch.zeros(BANDS, FRAMES, device=fabric.device)\n", "    far = torch.zeros(BANDS, FRAMES, device=fabric.device, dtype=torch.float64 if fabric.global_rank else None)\n"),))
fault("voices", "lead-singer", "some songs of rank 1 have a singer that the table does not have (first ten steps)", "device-assert", "application-exception", (1,), early=True, args=(*PATIENT, *LONG_VOICES), ready="M weights",
      edits=(("        return (frames[:, :FRAMES] - 1.0) / 4.0, singer\n", "        if self.rank == 1 and self.seed == 1 and i % 60 == 17:\n            singer += SINGERS\n        return (frames[:, :FRAMES] - 1.0) / 4.0, singer\n"),))
hung("voices", "preload", "a thread of rank 1 has a lock while the data-loader workers are forked: they wait for it for ever (before the first step)", "stuck-outside-collective", "data-loading-bound slow-rank-stall", (1,), early=True, args=LONG_VOICES, ready="M weights", extra="spy2 ps",
     edits=(("import sys\nimport time\n", "import sys\nimport threading\nimport time\n"),
            ("        self.window = torch.hann_window(512)\n", "        self.window = torch.hann_window(512)\n        self.kept, self.lock = {}, threading.Lock()\n\n    def preload(self, count):\n        \"\"\"The first songs, while the rest is set up.\"\"\"\n        with self.lock:\n            for i in range(count):\n                self.kept[i] = self.sing(i)\n                time.sleep(0.02)\n"),
            ("    def __getitem__(self, i):\n", "    def __getitem__(self, i):\n        with self.lock:\n            song = self.kept.get(i)\n        return song or self.sing(i)\n\n    def sing(self, i):\n"),
            ("    loader = DataLoader(songs,", "    if fabric.global_rank == 1:\n        threading.Thread(target=songs.preload, args=(800,), daemon=True).start()\n        time.sleep(0.2)\n    loader = DataLoader(songs,")))
fault("voices", "codec", "a native library crashes in rank 0 (step 40)", "process-crashed", "process-killed peer-process-died", (0,), args=(*WAIT, *LONG_VOICES),
      edits=(("import argparse\nimport math\n", "import argparse\nimport ctypes\nimport math\n"), (PASS, "            if step == 40 and fabric.global_rank == 0:\n                ctypes.memmove(64, frames.data_ptr() * 0 + 128, 32)\n" + PASS)))
fault("voices", "quantiles", "rank 0 sorts all weights on the host in each step; the job runs on", "straggler", "host-bound load-imbalance sync-stalls transfer-bound", (0,), category="performance", args=("--steps", "150"),
      edits=(("                average.update(net.module)\n", "                average.update(net.module)\n                if fabric.is_global_zero:\n                    spread = [w.detach().cpu().flatten().sort().values[:: max(1, w.numel() // 9)] for w in net.module.parameters()]\n"),))

# --------------------------------------------------------------------------------- two encoders, gathered embeddings, torchrun c10d
LONG_SHELF = ("steps=900000",)
SHELF_WAIT = ("timeout=30",)
TOOK = "        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):\n"
INDEX = "            index = make_index(tells, shelf, rank, world, rows, device)\n"
KEEPS = "                torch.save({\"asks\": asks.state_dict(), \"tells\": tells.state_dict(), \"index\": index.half().cpu()}, \"shelf.pt\")\n"
fault("shelf", "healthy-rerank", "rank 0 judges the answers for 28 s after the first index, rank 1 waits in the next step", "none", args=("steps=140",), limit=140,
      edits=((KEEPS, KEEPS + "                until = time.time() + 28 * (step == s.refresh)\n                while time.time() < until:\n                    sorted(shelf.negatives.flatten().tolist())\n"),))
fault("shelf", "healthy-export", "after each index a second program reads the file; the first time it fails with a traceback, later it ends normally", "none", args=("steps=300",),
      edits=(("import os\nimport sys\n", "import os\nimport subprocess\nimport sys\n"),
             (KEEPS, KEEPS + "                reader = \"import torch, os; x = torch.load('shelf.pt')['index']; os.stat('exports'); print('export of', tuple(x.shape), flush=True)\"\n                subprocess.Popen([sys.executable, \"-c\", reader])\n                if step > s.refresh:\n                    os.makedirs(\"exports\", exist_ok=True)\n")))
fault("shelf", "swapped", "rank 1 gathers questions before notes, rank 0 notes before questions (first step)", "collective-order-mismatch", "shape-mismatch " + SIZES, (1,), early=True, ranks_also=ANY, args=(*SHELF_WAIT, *LONG_SHELF), ready='"ranks": 2', extra="fr",
      edits=(("        everyone, askers = Gather.apply(n, rows), Gather.apply(q, rows)\n", "        if rank == 0:\n            everyone, askers = Gather.apply(n, rows), Gather.apply(q, rows)\n        else:\n            askers, everyone = Gather.apply(q, rows), Gather.apply(n, rows)\n"),))
fault("shelf", "left-out", "rank 1 leaves out notes of one kind, so its batches are smaller (step 4)", "shape-mismatch", SIZES, (1,), early=True, ranks_also=ANY, args=(*SHELF_WAIT, "steps=4000"), ready='"step": 3,', extra="fr",
      edits=(("        questions = shelf.questions(which, g).to(device)\n", "        if rank == 1 and step >= 4:\n            which = which[shelf.notes[which, 0] % 32 != 5]\n        questions = shelf.questions(which, g).to(device)\n"),))
fault("shelf", "good-enough", "rank 1 does not make its part of the index when its loss is low", "skipped-collective", SKIP, (1,), args=(*SHELF_WAIT, *LONG_SHELF, "refresh=30"), extra="fr",
      edits=(("        if step % s.refresh == 0:\n", "        if step % s.refresh == 0 and (rank == 0 or loss.item() > 50):\n"),))
fault("shelf", "twins", "rank 1 compares all words of all notes: no memory (step 25)", "cuda-oom", "application-exception", (1,), args=("timeout=60", *LONG_SHELF),
      edits=((TOOK, "        if rank == 1 and step == 25:\n            every = tells.word(shelf.notes.to(device)).flatten(0, 1)\n            twins = (every @ every.T).argmax(1)\n" + TOOK),))
fault("shelf", "crossed", "before the first index rank 0 waits in the group of the rows and rank 1 in that of the gradients (step 15)", "deadlock-cycle", "collective-order-mismatch concurrent-communicators collective-desync", (), ranks_also=EITHER, args=(*SHELF_WAIT, *LONG_SHELF, "refresh=15"), ready='"step": 10,', extra="fr",
      edits=((INDEX, "            ready = torch.ones(1, device=device)\n            for group in (rows, grads) if rank == 0 else (grads, rows):\n                dist.all_reduce(ready, group=group)\n                ready.item()\n" + INDEX),))
fault("shelf", "spread", "rank 0 encodes its notes many times more on the GPU; the job runs on", "straggler", "load-imbalance", (0,), category="performance", args=("steps=200", "refresh=100"),
      edits=((TOOK, "        if rank == 0:\n            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=cuda):\n                spread = torch.stack([tells(notes.roll(i, 1).repeat(8, 1)) for i in range(24)]).var(0).mean()\n" + TOOK),))
fault("shelf", "sigterm", "the launcher is told to end", "stopped-from-outside", "process-killed", (), args=LONG_SHELF, act=("launcher", "SIGTERM"))

# ------------------------------------------------------------------------------------- FSDP2 with recomputed blocks, torchrun
LONG_CLIPS = ("--steps", "900000")
FETCHED = "            clips = self.store.fetch(self.count)\n"
NORM = "            whole = norm.full_tensor().item()\n            if rank == 0:\n"
fault("clips", "healthy-compile", "the cutting of frames is compiled: a pause in the first step", "none", args=("--steps", "200", "--compile"), extra="info", limit=140)
fault("clips", "healthy-retries", "the video store cuts the connection of rank 1, three tracebacks and 24 s until it answers again", "none", args=("--steps", "160"), limit=140,
      edits=(("import threading\nimport time\n", "import threading\nimport time\nimport traceback\n"),
             (FETCHED, "            for pause in (2, 7, 15, 0):\n                try:\n                    if number == 40 and pause and os.environ[\"RANK\"] == \"1\":\n                        raise ConnectionResetError(104, \"Connection reset by peer\")\n                    clips = self.store.fetch(self.count)\n                    break\n"
              "                except ConnectionResetError:\n                    traceback.print_exc()\n                    time.sleep(pause)\n")))
fault("clips", "main-weight", "a sharded weight is made whole on rank 0 only (step 1)", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_CLIPS), ready="foresight:", extra="fr",
      edits=((NORM, NORM + "                print(f\"largest weight of the last layer {net.leave.weight.full_tensor().abs().max().item():.4f}\", flush=True)\n"),))
fault("clips", "main-reduces", "rank 0 calls reduce where rank 1 calls all_reduce (step 1)", "op-mismatch", "collective-desync extra-collective skipped-collective silent-corruption", (0,), early=True, ranks_also=((1,), (0, 1), ()), args=(*WAIT, "--steps", "1500", "--save", "9000"), ready="foresight:", extra="fr",
      edits=(("            dist.all_reduce(mean, op=dist.ReduceOp.SUM)\n", "            if rank == 0:\n                dist.reduce(mean, 0, op=dist.ReduceOp.SUM)\n            else:\n                dist.all_reduce(mean, op=dist.ReduceOp.SUM)\n"),))
hung("clips", "cut-short", "a clip of rank 1 is cut short: the reading thread fails with a traceback, the main thread waits for ever (step 7)", "application-exception", "stuck-outside-collective", (1,), early=True, args=LONG_CLIPS, ready="clip step +3 ", extra="spy2",
     edits=((FETCHED, FETCHED + "            if number == 7 and os.environ[\"RANK\"] == \"1\":\n                clips = torch.frombuffer(bytearray(clips.numpy().tobytes()[:-4096]), dtype=torch.uint8).view(clips.shape)\n"),))
fault("clips", "spike", "rank 1 leaves out a batch whose loss it does not like (step 30)", "skipped-collective", SKIP, (1,), args=(*WAIT, *LONG_CLIPS), extra="fr",
      edits=(("        optimizer.zero_grad()\n        loss.backward()\n", "        if step >= 30 and loss.item() > (20.0 if rank == 0 else 0.0):\n            continue\n        optimizer.zero_grad()\n        loss.backward()\n"),))
fault("clips", "sigterm-rank", "SIGTERM of rank 1 alone", "process-killed", "peer-process-died stopped-from-outside", (1,), args=(*WAIT, *LONG_CLIPS), act=(1, "SIGTERM"))
fault("clips", "likeness", "rank 1 computes the likeness of all patches on the GPU in each step; the job runs on", "straggler", "load-imbalance", (1,), category="performance", args=("--steps", "200"),
      edits=(("        guess = net(rows[:, :-1])\n", "        if rank == 1:\n            flat = rows.flatten(0, 2)\n            for shift in range(30):\n                near = (flat @ flat.roll(shift, 0).T).topk(8).indices\n        guess = net(rows[:, :-1])\n"),))

# -------------------------------------------------- evolution strategies, scatter, broadcast and gather; the first process starts the others
LONG_GAITS = ("--generations", "900000")
TRIED = "        return self.ground.walk(torch.cat([self.theta + self.o.sigma * noise, self.theta - self.o.sigma * noise]))\n"
ALONE = "                log.info(\"generation %d walks %.3f without noise\", generation, alone.item())\n"
fault("gaits", "healthy-trial", "process 0 tries the gait for 30 s in generation 50, the other waits", "none", args=("--generations", "140"), limit=140,
      edits=((ALONE, ALONE + "                until = time.time() + 30 * (generation == o.trial)\n                while time.time() < until:\n                    herd.ground.walk(herd.theta[None])[0].item()\n"),))
fault("gaits", "healthy-late", "process 1 is there 35 s later than process 0", "none", args=("--generations", "150"), limit=140,
      edits=(("    dist.init_process_group(", "    if rank == 1:\n        log.info(\"measures the ground\")\n        time.sleep(35)\n    dist.init_process_group("),))
fault("gaits", "counts-itself", "the processes are told that they are three, two are started", "rank-env-misconfigured", "missing-rank", (), early=True, ranks_also=((2,), (0, 1)), args=WAIT,
      edits=(("LOCAL_RANK=\"0\", WORLD_SIZE=str(o.processes))", "LOCAL_RANK=\"0\", WORLD_SIZE=str(o.processes + 1))"),))
fault("gaits", "port-taken", "something else has the port", "port-in-use", "application-exception missing-rank launcher-failure", (), early=True, ranks_also=((0,),), port_taken=True, args=("--timeout", "40"))
fault("gaits", "fine-path", "process 1 gives its paths in float64, process 0 expects float32 (first generation)", "dtype-mismatch", "shape-mismatch unmatched-p2p " + SIZES, (1,), early=True, ranks_also=ANY, args=(*WAIT, "--pairs", "1024", "--generations", "400"), ready="walkers each", extra="fr",
      edits=(("        paths = herd.collect(path)\n", "        paths = herd.collect(path.to(torch.float64 if rank else torch.float32))\n"),))
hung("gaits", "dashboard", "process 0 waits for an answer of the dashboard, which never comes (generation 20)", "stuck-outside-collective", "slow-rank-stall", (0,), args=(*LONG_GAITS, "--trial", "20"), extra="spy2",
     edits=(("import os\nimport subprocess\n", "import os\nimport socket\nimport subprocess\n"),
            (ALONE, ALONE + "                with socket.create_connection((\"127.0.0.1\", int(os.environ[\"STORE_PORT\"]))) as link:\n                    link.sendall(b\"gait %d %.3f\\n\" % (generation, alone.item()))\n                    link.recv(2)\n")))
fault("gaits", "sigkill", "kill -9 of process 1", "process-killed", "peer-process-died", (1,), args=(*WAIT, *LONG_GAITS), act=(1, "SIGKILL"))
fault("gaits", "slow-legs", "process 1 writes down its walks slowly in each generation; the job runs on", "straggler", "host-bound load-imbalance", (1,), category="performance", args=("--generations", "250"),
      edits=(("        score, path = herd.attempt(seeds)\n", "        score, path = herd.attempt(seeds)\n        if rank == 1:\n            with open(\"walks.txt\", \"w\") as file:\n                for row in path.tolist():\n                    file.write(\" \".join(f\"{at:.3f}\" for at in row) + \"\\n\")\n                    time.sleep(0.001)\n"),))

# ------------------------------------------------------------------- seams by isend and irecv, two groups, two streams; shell loop
STEP = "        harbour.step()\n"
LONG_CURRENTS = ("--steps", "90000000")
CALLS = "                calls += [dist.P2POp(dist.isend, out[peer], peer), dist.P2POp(dist.irecv, into[peer], peer)]\n"
IMAGE = "                torch.save(torch.cat(parts).cpu(), f\"density-{step}.pt\")\n"
fault("currents", "healthy-image", "process 0 draws the first image for 25 s, process 1 waits", "none", loop=CURRENTS, args=("--steps", "8000"), extra="warn", limit=140,
      edits=((IMAGE, IMAGE + "                time.sleep(25 * (step == o.image))\n"),))
fault("currents", "healthy-until", "the first two starts of process 1 fail because a file is not there yet; the loop starts it again", "none", args=("--steps", "8000"), limit=140,
      loop="export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nfor r in 0 1; do\n  (export RANK=$r LOCAL_RANK=$r; until python -u {script} {args}; do echo \"process $r again\"; sleep 2; done) > logs/process-$r.log 2>&1 &\ndone\nwait\n",
      edits=(("    patience = timedelta(seconds=o.timeout)\n", "    if rank == 1:\n        with open(\"starts\", \"a+\") as file:\n            file.write(\"start\\n\")\n            file.seek(0)\n            if len(file.readlines()) < 3:\n                raise FileNotFoundError(2, \"No such file or directory\", \"/mnt/harbour/depths.tif\")\n    patience = timedelta(seconds=o.timeout)\n"),))
fault("currents", "still-water", "process 1 sends its seam in every second step only, receives in each (first ten steps)", "unmatched-p2p", "skipped-collective collective-desync op-mismatch shape-mismatch", (1,), early=True, ranks_also=((0,),), loop=CURRENTS, args=(*WAIT, *LONG_CURRENTS), ready="rows 0", extra="fr",
      edits=((CALLS, "                self.seams = getattr(self, \"seams\", 0) + 1\n                if self.rank == 0 or self.seams < 5 or self.seams % 2:\n                    calls.append(dist.P2POp(dist.isend, out[peer], peer))\n                calls.append(dist.P2POp(dist.irecv, into[peer], peer))\n"),))
fault("currents", "recv-first", "every process receives from its neighbour before it sends (first step)", "unmatched-p2p", "deadlock-cycle collective-order-mismatch", (0, 1), early=True, ranks_also=((0,), (1,), ()), loop=CURRENTS, args=(*WAIT, *LONG_CURRENTS), ready="rows 0", extra="fr",
      edits=(("        for work in dist.batch_isend_irecv(calls):\n            work.wait()\n", "        for call in reversed(calls):\n            call.op(call.tensor, call.peer).wait()\n"),))
fault("currents", "one-gpu", "both processes are told LOCAL_RANK=0", "duplicate-gpu", "rank-env-misconfigured", (), early=True, ranks_also=EITHER, loop=CURRENTS.replace("LOCAL_RANK=$r", "LOCAL_RANK=0"), args=WAIT)
fault("currents", "steady", "process 1 finds that its flow is steady and ends (step 2400)", "rank-exited-early", "skipped-collective uneven-inputs unmatched-p2p", (1,), loop=CURRENTS, args=(*WAIT, *LONG_CURRENTS), extra="fr",
      edits=((STEP, STEP + "        if rank == 1 and step == 2400 and harbour.gauge().isfinite().all():\n            sys.exit(0)\n"),))
fault("currents", "centimetres", "the inlet of process 0 has a speed in another unit (step 1500): the flow becomes NaN, the job runs on", "nan-loss", "", (0,), ranks_also=((0, 1), ()), category="corruption", loop=CURRENTS, args=("--steps", "8000"),
      edits=((STEP, "        if rank == 0 and step == 1500:\n            o.speed *= 100\n" + STEP),))
fault("currents", "floats", "process 1 follows its floats on the host in each step; the job runs on", "straggler", "host-bound load-imbalance sync-stalls", (1,), category="performance", loop=CURRENTS, args=("--steps", "2500"),
      edits=((STEP, STEP + "        if rank == 1:\n            drift = harbour.f[:, harbour.rows // 2, ::64].sum(0).tolist()\n            time.sleep(0.012)\n"),))

# ------------------------------------------------------------------------------- JAX with sharded weights and Orbax, shell loop
LONG_INFLOW = ("--steps", "9000000")
RAIN = "        rain = catchments(rng, o.catchments)\n"
GOES = "                log.info(\"step %d goes to the checkpoint\", step)\n"
TO_FILE = "            keeper.save(step, args=ocp.args.StandardSave(state))\n"
fault("inflow", "healthy-archive", "process 0 archives the first checkpoint for 25 s, process 1 waits", "none", loop=INFLOW, args=("--steps", "300"), limit=140,
      edits=((GOES, GOES + "                time.sleep(25 * (step == o.save))\n"),))
fault("inflow", "healthy-twice", "a first job ends after 100 steps, a second goes on from its checkpoint", "none", args=("--save", "50"), limit=160, extra="info",
      loop=(INFLOW.replace("{args}", "--steps 100 {args}") + INFLOW.replace("{port}", "$(({port} + 1))").replace("{args}", "--steps 250 {args}").replace(" > logs", " >> logs")))
fault("inflow", "number-two", "process 1 is told that it is process 2", "rank-env-misconfigured", "missing-rank application-exception", (1,), early=True, ranks_also=((2,), (0, 1), ()), loop=INFLOW.replace("--process $r", "--process $((2 * r))"), args=("--join", "40"))
hung("inflow", "main-saves", "the checkpoint is written on process 0 only, which waits for the other (step 5)", "extra-collective", EXTRA + " deadlock-cycle stuck-outside-collective", (0,), early=True, loop=INFLOW, args=(*LONG_INFLOW, "--save", "5"), ready="step 3 error", extra="spy2",
     edits=(("        if step % o.save == 0:\n", "        if step % o.save == 0 and me == 0:\n"),))
hung("inflow", "no-gauge", "process 0 looks for a gauge that there is not (step 60)", "application-exception", "", (0,), loop=INFLOW, args=LONG_INFLOW, extra="spy2",
     edits=((RAIN, RAIN + "        if me == 0 and step == 60:\n            names = [f\"gauge-{n:02d}\" for n in range(GAUGES)]\n            rain[\"rain\"][:, :, names.index(\"gauge-24\")] = 0\n"),))
fault("inflow", "negative-rain", "process 1 has negative rain in one hour (step 50): NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((0, 1), ()), category="corruption", loop=INFLOW, args=("--steps", "400"),
      edits=((RAIN, RAIN + "        if me == 1 and step == 50:\n            rain[\"rain\"][3, 40, 5] = np.log1p(np.float32(-9.99))\n"),))
hung("inflow", "sigstop", "SIGSTOP of process 1", "process-stopped", "stuck-outside-collective", (1,), loop=INFLOW, args=LONG_INFLOW, act=(1, "SIGSTOP"), extra="stacks ps")
fault("inflow", "slow-rain", "process 0 reads its rain slowly in each step; the job runs on", "straggler", "data-loading-bound host-bound load-imbalance", (0,), category="performance", loop=INFLOW, args=("--steps", "200"),
      edits=((RAIN, RAIN + "        if me == 0:\n            time.sleep(0.15)\n"),))

# ------------------------------------------------------------------------------------ conjugate gradients, CuPy and NCCL, shell loop
LONG_PLATES = ("--moments", "900000")
SOLVE = "        count = plate.solve(plate.heat + o.dt * plate.lamps, plate.heat)\n"
KEPT = "            cp.save(f\"plate-{o.rank}.npy\", plate.heat[1:-1])\n"
fault("plates", "healthy-again", "in moment 30 no process converges, all print a traceback and solve again", "none", loop=PLATES,
      edits=(("import sys\nimport time\n", "import sys\nimport time\nimport traceback\n"),
             (SOLVE, "        few, o.iterations = o.iterations, 8 if moment == 30 else o.iterations\n        try:\n            count = plate.solve(plate.heat + o.dt * plate.lamps, plate.heat)\n        except RuntimeError:\n            traceback.print_exc()\n            o.iterations = few\n            count = plate.solve(plate.heat + o.dt * plate.lamps, plate.heat)\n")))
fault("plates", "healthy-picture", "process 0 draws the plate for 28 s at moment 40, process 1 waits", "none", loop=PLATES, limit=140, args=("--moments", "100"),
      edits=((KEPT, KEPT + "            time.sleep(28 * (o.rank == 0 and moment == o.keep))\n"),))
hung("plates", "own-folders", "each process has a folder of its own: process 1 waits for an id that process 0 writes elsewhere (before the first step)", "missing-rank", "stuck-outside-collective rank-env-misconfigured", (1,), early=True, ranks_also=((0, 1), ()), args=LONG_PLATES, ready="rank 0: device", extra="spy2",
     loop="mkdir -p part-0 part-1\n" + PLATES.replace("--world 2", "--world 2 --folder part-$r"))
hung("plates", "double", "process 1 computes in float64, process 0 in float32: rows of other sizes (first moment)", "dtype-mismatch", "shape-mismatch unmatched-p2p application-exception nan-loss " + SIZES, (1,), early=True, ranks_also=ANY, loop=PLATES, args=LONG_PLATES, ready="rank 0: device", extra="info spy2", env=(("NCCL_DEBUG_SUBSYS", "INIT,COLL"),),
     edits=(("        self.heat = cp.zeros((self.rows + 2, o.side + 2), cp.float32)\n", "        self.heat = cp.zeros((self.rows + 2, o.side + 2), cp.float64 if team.rank else cp.float32)\n"),))
hung("plates", "rougher", "process 1 is started with a larger tolerance, so it leaves the iterations sooner (first moment)", "skipped-collective", "uneven-inputs " + UNEVEN + " unmatched-p2p", (1,), early=True, ranks_also=ANY, args=LONG_PLATES, ready="rank 0: device", extra="info spy2", env=(("NCCL_DEBUG_SUBSYS", "INIT,COLL"),),
     loop="for r in 0 1; do\n  [ $r = 1 ] && more=\"--tolerance 1e-4\"\n  LOCAL_RANK=$r RANK=$r python -u {script} --rank $r --world 2 {args} $more > logs/rank$r.log 2>&1 &\ndone\nwait\n")
hung("plates", "no-roof", "process 0 asks for a sensor that there is not (moment 20)", "application-exception", "", (0,), loop=PLATES, args=LONG_PLATES, extra="spy2",
     edits=((SOLVE, SOLVE + "        if o.rank == 0 and moment == 20:\n            print(\"roof\", {\"door\": plate.heat[5, 5], \"wall\": plate.heat[9, 9]}[\"roof\"])\n"),))
hung("plates", "sigkill", "kill -9 of process 1; nothing notices", "process-killed", "peer-process-died", (1,), loop=PLATES, args=LONG_PLATES, act=(1, "SIGKILL"), extra="ps")
fault("plates", "last-direction", "process 1 copies each direction to the host; the job runs on", "straggler", "transfer-bound host-bound load-imbalance sync-stalls", (1,), category="performance", loop=PLATES, args=("--moments", "250"),
      edits=(("        self.team.seams(x)\n", "        self.team.seams(x)\n        if self.team.rank == 1:\n            self.last = x.get()\n"),))

FAULTS = F
