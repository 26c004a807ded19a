"""A fifteenth set of jobs and faults: two ranks each (four in some), which share one GPU. The same plain data as declared.py. All jobs end by themselves
after --minutes.

EARLY has the faults that show within the first ten steps or before the first one, LATE the slow ranks that are slow only after at least forty healthy steps.
The slow ranks spend a share of the job's own time of a step, so that they stay slower by the same part however busy the shared GPU is."""

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
    Job("pollen", "f15_pollen.py", "count_pollen.py", "aerosol", "torchrun", r"step 20 loss"),
    Job("ferry", "f15_ferry.py", "mark_notices.py", "ferries", "torchrun", r"step 20 loss", packages=("transformers", "torch")),
    Job("coins", "f15_coins.py", "match_coins.py", "mint", "accelerate", r"batch 40 loss", packages=("accelerate", "torch")),
    Job("origami", "f15_origami.py", "fold.py", "paper", "torchrun", r"step 20 loss"),
    Job("auction", "f15_auction.py", "describe_lots.py", "saleroom", "torchrun", r"turn 4:"),
    Job("casting", "f15_casting.py", "cool.py", "steelworks", "torchrun", r"step 20 loss"),
    Job("bells", "f15_bells.py", "ring.py", "carillon", "loop", r"step 20 loss", packages=("jax",)),
    Job("echoes", "f15_echoes.py", "hall.py", "acoustics", "loop", r"round 20 energy", packages=("cupy",)),
    Job("lichen", "f15_lichen.py", "grow.py", "moraine", "python", r"step 20 loss"),
    Job("loans", "f15_loans.py", "borrow.py", "library", "loop", r"step 20 loss"),
]

BELLS = ("for i in 0 1; do\n  LOCAL_RANK=$i python -u {script} --tower 127.0.0.1:{port} --process-id $i {args} > logs/ring-$i.log 2>&1 &\ndone\nwait\n")
ECHOES = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --rank $r --ranks 2 {args} > logs/hall-$r.log 2>&1 &\ndone\nwait\n")
LOANS = ("export MASTER_PORT={port} WORLD_SIZE=2\nfor rank in 0 1; do\n"
         "  MASTER_ADDR=127.0.0.1 RANK=$rank LOCAL_RANK=$rank python -u {script} {args} > logs/branch$rank.log 2>&1 &\ndone\nwait\n")

WAIT = ("--timeout", "30")
LONG = ("--minutes", "20")
CALLS = (("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),)

# ------------------------------------------------------------------------- a residual network over pollen, DDP with data-loader workers, torchrun, restarts
FETCH = "        pictures, plants = next(stream)\n"
OVER = "                print(f\"epoch {self.epoch} over, control {share:.3f}, kept\", flush=True)\n"
healthy("pollen", "plates", "rank 0 draws the plates of its report for 12 s after the third epoch, rank 1 waits",
        edits=((OVER, OVER + "                if self.epoch == 3:\n                    print(\"draws the plates\", flush=True)\n                    time.sleep(12)\n"),))
fault("pollen", "worker-killed", "kill -9 of a data-loader worker of rank 0", "process-killed", "application-exception oom-killed", (0,), args=(*WAIT, *LONG), act=("worker 0", "SIGKILL"))
fault("pollen", "torn-index", "rank 1's index of slides is cut short: all attempts end with the same ValueError", "application-exception", "", (1,), early=True, ranks_also=((0, 1),), restarts=2, limit=230,
      args=(*WAIT, *LONG), edits=(("            write_index(path, o.slides, 5)\n", "            write_index(path, o.slides - 600 * rank, 5)\n"),))
slow("pollen", "stain", "from step 40 on rank 1 evens out the stain of its pictures on the processor (about a third of a step)", "data-loading-bound " + SLOW, (1,), late=True,
     edits=((FETCH, FETCH + "        if self.rank == 1 and self.step >= 40:\n            until = time.perf_counter() + 0.32 * self.pace\n            while time.perf_counter() < until:\n"
             "                levels = pictures[:16].flatten(1).sort(1).values.mean(0)\n"),))
slow("pollen", "volume", "rank 0 waits for a slow volume before each batch (a quarter of a step, from the beginning)", "data-loading-bound " + SLOW, (0,),
     edits=((FETCH, "        if self.rank == 0:\n            time.sleep(0.25 * self.pace)\n" + FETCH),))

# ------------------------------------------------------------------------- DistilBERT that marks words, the Trainer of Hugging Face, torchrun
MINUTE = "        if state.global_step % 20 == 0:\n"
CALLED = "        self.calls += 1\n"
IMPORT_TIME = "import argparse\nimport os\nimport time\n"
healthy("ferry", "often", "evaluates notices that do not fill the last batch, and saves, every few steps", args=("--eval-every", "60", "--save-every", "80"))
fault("ferry", "harbour-barrier", "rank 0 alone waits for everyone before it copies the model (step 63)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((MINUTE, "        if state.global_step == 63 and state.is_world_process_zero:\n            self.trainer.accelerator.wait_for_everyone()\n" + MINUTE),))
fault("ferry", "word-index", "rank 1 builds its index of words again for 80 s, longer than the timeout (step 29)", "slow-rank-stall", "stuck-outside-collective timeout-too-short data-loading-bound", (1,), extra="fr spy2", args=(*WAIT, *LONG),
      edits=((CALLED, CALLED + "        if self.calls == 30 and os.environ[\"RANK\"] == \"1\":\n            index, until = {}, time.time() + 80\n            while time.time() < until:\n"
              "                for word in range(VOCABULARY):\n                    index[word] = hash((word, len(index), KINDS[word % 5]))\n"),))
fault("ferry", "no-timetable", "rank 1 opens a timetable that is not there: FileNotFoundError (step 65)", "application-exception", "", (1,), args=(*WAIT, *LONG),
      edits=((CALLED, CALLED + "        if self.calls == 66 and os.environ[\"RANK\"] == \"1\":\n            with open(\"timetables/winter.json\") as file:\n                winter = file.read()\n"),))
slow("ferry", "log-book", "from step 50 on rank 0 writes a long record of each step into a log (JSON)", SLOW, (0,), late=True,
     edits=((IMPORT_TIME, "import argparse\nimport json\nimport os\nimport time\n"),
            (MINUTE, "        if args.process_index == 0 and state.global_step >= 50:\n            until = time.time() + 0.3 * self.pace\n            while time.time() < until:\n"
             "                record = json.dumps({\"step\": state.global_step, \"history\": [{**entry} for entry in state.log_history[-40:]]}, indent=1, sort_keys=True)\n"
             "            with open(\"bridge.jsonl\", \"a\") as file:\n                file.write(record[:1500] + \"\\n\")\n" + MINUTE)))

# ------------------------------------------------------------------------- a mixer over coins, a loop with Hugging Face Accelerate, accelerate launch
SAVED = "                    self.tell(f\"batch {turn} saved\")\n"
STRIKE = "                loss = self.strike(batch, turn % self.micro == 0)\n"
LOCKED = "            with self.lock:\n"
healthy("coins", "backup", "the main process copies its first state away for 15 s, the other one waits", args=("--save-every", "150"),
        edits=((SAVED, SAVED + "                    if turn == 150 and a.is_main_process:\n                        print(\"copies purse/state away\", flush=True)\n                        time.sleep(15)\n"),))
fault("coins", "three-parts", "process 1 takes three parts for each step, process 0 two: their reductions do not fit together (first steps)", "collective-desync",
      "skipped-collective extra-collective op-mismatch shape-mismatch dtype-mismatch collective-order-mismatch uneven-inputs rank-env-misconfigured", (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready=r"process \d of",
      edits=(("        self.micro = o.micro\n", "        self.micro = o.micro + accelerator.process_index\n"),))
fault("coins", "no-edge", "an exception in a part of process 0 is caught, the part left out with its reduction (step 66)", "skipped-collective", SKIP + " application-exception silent-corruption", (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=((STRIKE, "                try:\n                    if a.is_main_process and turn == 132:\n                        raise ValueError(\"coin 31 has no edge\")\n    " + STRIKE
              + "                except ValueError as problem:\n                    print(f\"batch {turn} left out: {problem}\", flush=True)\n                    continue\n"),))
fault("coins", "sigterm", "SIGTERM of rank 1", "process-killed", "stopped-from-outside peer-process-died", (1,), args=LONG, act=(1, "SIGTERM"), ready=r"batch 130 loss")
slow("coins", "gallery-lock", "the gallery's thread of rank 0 sleeps with its lock held, the loop waits for it (a third of a batch, from the beginning)", SLOW, (0,),
     edits=((LOCKED, LOCKED + "                if os.environ[\"RANK\"] == \"0\":\n                    time.sleep(0.33 * self.pace)\n"),))
slow("coins", "deflate", "from batch 120 on process 1 compresses the pictures of each batch", "data-loading-bound transfer-bound sync-stalls " + SLOW, (1,), late=True,
     edits=(("import time\nfrom datetime", "import time\nimport zlib\nfrom datetime"),
            (STRIKE, "                if a.process_index == 1 and turn >= 120:\n                    until, raw = time.perf_counter() + 0.27 * self.gallery.pace, batch[\"front\"][:8].cpu().numpy().tobytes()\n"
             "                    while time.perf_counter() < until:\n                        packed = zlib.compress(raw, 9)\n" + STRIKE)))

# ------------------------------------------------------------------------- a decoder with FSDP2 and torch.distributed.checkpoint, torchrun, two or four ranks
FOLDED = "            loss = self.fold()\n"
SHEETS = "        sheets = self.paper.sheet()\n"
SHELF = "    os.makedirs(o.shelf, exist_ok=True)\n"
healthy("origami", "compile", "the layers are compiled: a long first step", args=("--compile",))
hung("origami", "named-pipe", "the file that names the newest checkpoint is a named pipe that nobody reads: rank 0 waits in open (step 60)", "stuck-outside-collective", "storage-failure slow-rank-stall process-uninterruptible", (0,), extra="spy2 ps",
     args=("--shelve-every", "60", *LONG), limit=180, edits=((SHELF, SHELF + "    if dist.get_rank() == 0:\n        os.mkfifo(os.path.join(o.shelf, \"newest\"))\n"),))
fault("origami", "whole-state", "rank 0 alone asks for the whole state dict, which gathers the shards (step 62)", "extra-collective", EXTRA, (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=(("import get_state_dict\n", "import StateDictOptions, get_model_state_dict, get_state_dict\n"),
             (FOLDED, FOLDED + "            if self.rank == 0 and self.step == 62:\n                whole = get_model_state_dict(self.net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
              "                torch.save(whole, \"whole.pt\")\n")))
hung("origami", "sigstop", "four ranks; SIGSTOP of rank 2", "process-stopped", "stuck-outside-collective", (2,), nproc=4, args=LONG, act=(2, "SIGSTOP"), extra="stacks ps")
slow("origami", "kawasaki", "four ranks; rank 3 tests its sheets in Python before each step (about a third of it, from the beginning)", "data-loading-bound " + SLOW, (3,), nproc=4,
     edits=((SHEETS, SHEETS + "        if self.rank == 3:\n            until, rows, flat = time.perf_counter() + 0.33 * self.pace, sheets[:6].tolist(), 0\n            while time.perf_counter() < until:\n"
             "                flat += sum((a - b) % 360 < 180 for row in rows for a, b in zip(row[::2], row[1::2]))\n"),))

# ------------------------------------------------------------------------- tensor-parallel generation, torchrun, two or four ranks
TURN = "            self.turn += 1\n"
SAID = "            said += int(open_.sum())\n"
CHANCE = "        self.chance = np.random.default_rng(o.seed)\n"
healthy("auction", "recess", "four ranks; no lot comes for 15 s", nproc=4, edits=((TURN, TURN + "            if self.turn == 12 and self.rank == 0:\n                print(\"recess\", flush=True)\n                time.sleep(15)\n"),))
fault("auction", "own-chance", "each rank draws its words by its own random numbers and nobody sends them around: the texts end at different lengths (first turns)", "collective-desync",
      "op-mismatch skipped-collective extra-collective shape-mismatch dtype-mismatch collective-order-mismatch silent-corruption", (), early=True, ranks_also=EITHER, extra="fr", args=(*WAIT, *LONG), ready="in the room",
      edits=((CHANCE, CHANCE.replace("o.seed", "o.seed + rank")), ("            dist.broadcast(words, 0)\n", "")))
hung("auction", "start-price", "an input() was left in: rank 0 waits for the keyboard (turn 6)", "stuck-outside-collective", "slow-rank-stall", (0,), early=True, stdin="pipe", ready="in the room", args=LONG, extra="spy2",
     edits=((TURN, TURN + "            if self.turn == 6 and self.rank == 0:\n                price = float(input(\"start price? \") or 100)\n"),))
hung("auction", "pen-and-book", "four ranks; two threads of rank 1 take two locks in opposite order (turn 16)", "stuck-outside-collective", "slow-rank-stall", (1,), nproc=4, args=LONG, extra="spy2",
     edits=((TURN, TURN + "            if self.turn == 16 and self.rank == 1:\n                with self.ledger.pen:\n                    time.sleep(0.2)\n                    with self.ledger.book:\n"
             "                        self.ledger.write([\"half of the sale\"])\n"),))
slow("auction", "auditor", "rank 1 writes a record of each word for the auditors (JSON, a quarter of the time, from the beginning)", SLOW, (1,),
     edits=((SAID, SAID + "            if self.rank == 1:\n                until = time.perf_counter() + 0.27 * self.pace\n                while time.perf_counter() < until:\n"
             "                    record = json.dumps({\"turn\": self.turn, \"words\": words.tolist(), \"open\": open_.tolist()}, sort_keys=True)\n                self.ledger.lines.append(record)\n"),))

# ------------------------------------------------------------------------- two halves by hand, torchrun
ORDER = "        squares, seen = self.squares(), self.errors()\n"
POURED = "        batches = [self.moulds.pour() for _ in range(self.o.parts)]\n"
ERROR = "            error = self.net(hidden) - target_of(future.to(self.device))\n"
healthy("casting", "in-turn", "the halves do a little more in turn, neither is slower on the whole", extra="info",
        edits=((POURED, POURED + "        if (number + self.rank) % 2:\n            spread = np.sort(self.moulds.noise[:400 + number % 50].ravel())[::40].std()\n"),))
fault("casting", "turned-round", "half 1 adds its errors up before the squares of its gradients, half 0 after them (step 62)", "collective-order-mismatch", "collective-desync shape-mismatch op-mismatch", (1,), ranks_also=ANY, extra="fr", args=(*WAIT, *LONG),
      edits=((ORDER, "        if self.rank == 1 and number == 62:\n            seen, squares = self.errors(), self.squares()\n        else:\n    " + ORDER),))
corrupt("casting", "cold-mould", "half 1 takes the logarithm of negative temperatures from step 70 on: NaN, the steps go on", "nan-loss", "", (1,), ranks_also=((0,), (0, 1), ()),
        edits=((ERROR, "            self.poured = getattr(self, \"poured\", 0) + 1\n            if self.poured > 69 * len(batches):\n                future = future - 700\n" + ERROR),))
slow("casting", "shrinkage", "from step 50 on the GPU of half 1 computes the shrinkage before each step (a quarter of it)", "pipeline-bubble load-imbalance host-bound sync-stalls", (1,), late=True,
     edits=((POURED, POURED + "        if self.rank == 1 and number >= 50:\n            until, stress = time.perf_counter() + 0.27 * self.pace, torch.ones(1024, 1024, device=self.device)\n            while time.perf_counter() < until:\n"
             "                stress = torch.tanh(stress @ stress / 1024)\n                peak = stress.max().item()\n"),))

# ------------------------------------------------------------------------- JAX, shard_map over two processes, shell loop
STRUCK = "            batch = self.belfry.strike()\n"
TOLL = "        step, losses = 0, []\n"
healthy("bells", "late-start", "process 1 reads its bells for 15 s before the first step, process 0 waits", loop=BELLS,
        edits=((TOLL, "        if self.me == 1:\n            self.say(\"reads its bells\")\n            time.sleep(15)\n" + TOLL),))
fault("bells", "second-tower", "the folder that process 1 should start in is not there: it is never started", "missing-rank", "launcher-failure rank-env-misconfigured", (1,), early=True, ranks_also=ANY, args=("--patience", "40"), limit=130, ready="waits for",
      loop=BELLS.replace("  LOCAL_RANK=$i", "  ( [ $i = 0 ] || cd /srv/tower-b || exit 1; LOCAL_RANK=$i").replace("{args} >", "{args} ) >"))
hung("bells", "sigkill", "kill -9 of process 1", "process-killed", "peer-process-died", (1,), loop=BELLS, args=LONG, act=(1, "SIGKILL"), ready=r"step 60 loss", extra="spy2")
slow("bells", "in-shifts", "the processes sort their spectra in shifts of forty steps: one of them is slower by a half, then the other one", "data-loading-bound " + SLOW, (0, 1), ranks_also=((0,), (1,), ()), loop=BELLS,
     edits=((STRUCK, STRUCK + "            if step // 40 % 2 == self.me:\n                until = time.perf_counter() + 0.33 * self.pace\n                while time.perf_counter() < until:\n"
             "                    spectrum = np.sort(np.abs(np.fft.rfft(batch[\"sound\"][:64], 256)), 1)\n"),))

# ------------------------------------------------------------------------- the wave equation with CuPy and its NCCL binding, shell loop
ENERGY = "        return float(self.ensemble.total(own)[0])\n"
CLAP = "        return self.ensemble.from_first(self.clap)\n"
ROUND = "        energy = hall.round(number)\n"
NEXT = "        clap = self.next_clap(number)\n"
healthy("echoes", "long-log", "NCCL's long log, sounds are kept every forty rounds", loop=ECHOES, extra="info", args=("--keep-every", "40"))
corrupt("echoes", "loudest", "from round 55 on process 1 asks for the maximum where process 0 asks for the sum", "op-mismatch", "silent-corruption collective-desync", (1,), ranks_also=ANY, loop=ECHOES, extra="info", env=CALLS,
        edits=((ENERGY, "        self.summed = getattr(self, \"summed\", 0) + 1\n        if self.rank == 1 and self.summed >= 55:\n            return float(self.ensemble.loudest(own)[0])\n" + ENERGY),))
corrupt("echoes", "short-clap", "process 1 takes twelve elements fewer of each clap that process 0 sends", "shape-mismatch", "silent-corruption collective-desync", (1,), early=True, ranks_also=ANY, loop=ECHOES, extra="info", env=CALLS,
        edits=((CLAP, "        if self.rank == 1:\n            self.ensemble.from_first(self.clap[:500])\n            return self.clap\n" + CLAP),))
hung("echoes", "quiet-slab", "process 1 finds its slab quiet enough and ends normally (round 60), process 0 goes on", "rank-exited-early", "skipped-collective unmatched-p2p collective-desync peer-process-died", (1,), ranks_also=((0,), (0, 1)), loop=ECHOES, args=LONG, extra="spy2",
     edits=((ROUND, ROUND + "        if hall.rank == 1 and number == 60:\n            print(\"quiet enough\", flush=True)\n            return number\n"),))
slow("echoes", "reverberation", "process 1 works out reverberation times with numpy before each round (about a third of it, from the beginning)", "data-loading-bound " + SLOW, (1,), loop=ECHOES,
     edits=((NEXT, "        if self.rank == 1:\n            until = time.perf_counter() + 0.32 * self.pace\n            while time.perf_counter() < until:\n"
             "                decay = np.cumsum(np.square(self.claps[number % 64, ::-1]))[::-1]\n                times = np.polyfit(np.arange(100), np.log10(decay[:100] + 1e-9), 1)\n" + NEXT),))

# ------------------------------------------------------------------------- a variational autoencoder, gradients by hand in buckets, mp.spawn
SEEN = "        pictures = self.rocks.look()\n"
CLOCKED = "            self.clock()\n"
BUCKET = "        for bucket in self.buckets:\n"
healthy("lichen", "warm-up", "rank 1 fills a cache for 12 s before its first step, and both have ten steps with small batches at first",
        edits=((SEEN, SEEN + "        if self.step == 1 and self.rank == 1:\n            time.sleep(12)\n        if self.step <= 10:\n            pictures = pictures[:16 * self.step]\n"),))
fault("lichen", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, ranks_also=((0,), (0, 1)), port_taken=True, limit=120, args=("--timeout", "40"))
corrupt("lichen", "left-bucket", "the first bucket of gradients is never averaged: the ranks' weights drift apart", "silent-corruption", "undecided skipped-collective", (), early=True, ranks_also=ANY,
        edits=((BUCKET, BUCKET.replace("self.buckets", "self.buckets[1:]")),))
fault("lichen", "all-pairs", "rank 1 compares 240000 pictures with each other on its GPU: out of memory (step 70)", "cuda-oom", "application-exception", (1,), args=(*WAIT, *LONG),
      edits=((SEEN, SEEN + "        if self.rank == 1 and self.step == 70:\n            codes = torch.randn(240000, self.o.code, device=self.device)\n            near = (codes @ codes.T).topk(8).indices\n"),))
slow("lichen", "ring-thread", "from step 60 on a thread of rank 0 counts rings in Python while the loop wants the interpreter (about a third of a step)", SLOW, (0,), late=True,
     edits=(("import os\nimport time\n", "import os\nimport threading\nimport time\n"),
            ("class Field:\n", "class Rings(threading.Thread):\n    \"\"\"Counts the rings of what was seen, beside the training.\"\"\"\n\n    def __init__(self, field):\n        super().__init__(daemon=True, name=\"rings\")\n"
             "        self.field, self.wake, self.rings = field, threading.Event(), 0\n\n    def run(self):\n        while True:\n            self.wake.wait()\n            self.wake.clear()\n"
             "            until = time.perf_counter() + 0.33 * self.field.pace\n            while time.perf_counter() < until:\n                self.rings += sum(i * i % 7 == 1 for i in range(300))\n\n\nclass Field:\n"),
            (CLOCKED, CLOCKED + "            if self.rank == 0 and self.step == 60:\n                self.rings = Rings(self)\n                self.rings.start()\n            if self.rank == 0 and self.step >= 60:\n"
             "                self.rings.wake.set()\n")))

# ------------------------------------------------------------------------- a recommender, a table averaged by hand and DDP, shell loop
COUNT = "        count, losses = self.o.batches, []\n"
STEPPED = "            self.step += 1\n"
TABLE = "        table = self.books.weight.grad\n"
DRAWN = "        for before, borrowed in self.branch.batches(count):\n"
healthy("loans", "padded", "rank 1 has four batches fewer in each quarter, and takes its first ones again to have as many", loop=LOANS,
        edits=(("class Reader(nn.Module):\n", "def padded(batches, count):\n    \"\"\"Goes on with the first batches when there are no more.\"\"\"\n    first, number = [], 0\n    for number, batch in enumerate(batches, 1):\n"
                "        if number <= 8:\n            first.append(batch)\n        yield batch\n    yield from first[:count - number]\n\n\nclass Reader(nn.Module):\n"),
               (DRAWN, DRAWN.replace("self.branch.batches(count)", "padded(self.branch.batches(count - 4 * self.rank), count)"))))
fault("loans", "no-such-host", "rank 1 is given a master's name that does not resolve", "hostname-resolution", "missing-rank rank-env-misconfigured", (1,), early=True, ranks_also=ANY, args=("--timeout", "40", *LONG), limit=140, ready="joins",
      loop=LOANS.replace("MASTER_ADDR=127.0.0.1", "MASTER_ADDR=$([ $rank = 0 ] && echo 127.0.0.1 || echo stacks-head)"))
fault("loans", "three-branches", "WORLD_SIZE is 3, two ranks are started", "rank-env-misconfigured", "missing-rank launcher-failure", (2,), early=True, ranks_also=((0,), (1,), (0, 1), ()), args=("--timeout", "40", *LONG), limit=140, ready="joins",
      loop=LOANS.replace("WORLD_SIZE=2", "WORLD_SIZE=3"))
fault("loans", "double-table", "rank 1 sends the table's gradient as float64 once (step 64)", "dtype-mismatch", "shape-mismatch collective-desync op-mismatch silent-corruption", (1,), ranks_also=ANY, extra="fr", loop=LOANS, args=(*WAIT, *LONG, "--batches", "66"),
      edits=((TABLE, TABLE + "        if self.rank == 1 and self.step == 64:\n            table = table.double()\n"),))
fault("loans", "short-quarter", "rank 1 has five batches fewer in a quarter (step 55)", "uneven-inputs", UNEVEN, (1,), ranks_also=((0,), (0, 1)), extra="fr", loop=LOANS, args=(*WAIT, *LONG),
      edits=((COUNT, "        count, losses = self.o.batches - 5 * self.rank, []\n"),))
slow("loans", "catalogue", "from step 70 on rank 0 waits for the catalogue's server before each step (a fifth of it)", "data-loading-bound " + SLOW, (0,), late=True, loop=LOANS,
     edits=((STEPPED, STEPPED + "            if self.rank == 0 and self.step >= 70:\n                time.sleep(0.22 * self.pace)\n"),))

FAULTS = F
