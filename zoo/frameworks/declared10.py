"""A tenth set of jobs and faults: two ranks each, on two GPUs. The same plain data as declared.py. Most jobs end by themselves after --minutes.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch collective-order-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
SIZES = "collective-desync silent-corruption op-mismatch"
SLOW = "host-bound load-imbalance"
EITHER = ((0,), (1,), (0, 1))
ANY = ((0,), (1,), (0, 1), ())


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"limit": 130, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 40, **more})


def healthy(job, name, says, extra="", **more):
    fault(job, "healthy-" + name, says, "none", extra=extra, **{"limit": 180, **more})


def slow(job, name, says, also="", ranks=(), **more):
    fault(job, name, says + "; the job runs on", "straggler", also, ranks, category="performance", **{"limit": 170, **more})


JOBS = [
    Job("leaves", "f10_leaves.py", "train.py", "herbarium", "torchrun", r"Epoch: \[0\]\[ +25/"),
    Job("quakes", "f10_quakes.py", "fit_picker.py", "seismo", "python", r"global_step=20 ", packages=("lightning", "torch")),
    Job("recipes", "f10_recipes.py", "run_clm.py", "recipes", "accelerate", r"step 20 loss", packages=("transformers", "accelerate", "torch")),
    Job("proteins", "f10_proteins.py", "pretrain.py", "proteinlm", "torchrun", r"step +20 \|"),
    Job("helpdesk", "f10_helpdesk.py", "serve.py", "helpdesk", "torchrun", r"rank0 POST .* id=3 "),
    Job("galaxies", "f10_galaxies.py", "fit_flow.py", "photoz", "loop", r"step 20 nll", packages=("jax",)),
    Job("spins", "f10_spins.py", "ising.py", "spins", "loop", r"measurement 3:", packages=("cupy",)),
    Job("tides", "f10_tides.py", "pipeline.py", "tides", "torchrun", r"step +20 "),
    Job("market", "f10_market.py", "dlrm.py", "market", "loop", r"step 20 logloss"),
]

GALAXIES = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --coordinator-address localhost:{port} --num-processes 2 --process-id $r {args} > logs/p$r.log 2>&1 &\ndone\nwait\n")
SPINS = ("export CUPYX_DISTRIBUTED_PORT={port}\nfor r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --rank $r --ranks 2 {args} > logs/spins.$r.out 2>&1 &\ndone\nwait\n")
MARKET = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nfor r in 0 1; do\n  RANK=$r LOCAL_RANK=$r python -u {script} {args} > logs/dlrm-$r.log 2>&1 &\ndone\nwait\n")
WAIT = ("--timeout", "30")
LONG = ("--minutes", "20")

# ------------------------------------------------------------------------- images, DDP by hand, fp16 with a loss scaler, torchrun
SCAN = "    def load(self, i):\n"
VIEW = "        img, label = self.load(i)\n"
PREPARED = "        images, target = prepare(images, device), target.to(device, non_blocking=True)\n"
OS = "import os\nimport time\n"
healthy("leaves", "overflow", "the loss scale is much too large at first and grows often: skipped steps, with a message each", args=("--init-scale", "1e12"),
        edits=(("growth_interval=200", "growth_interval=12"),))
healthy("leaves", "jitter", "both ranks need now more, now less time for a step", extra="warn",
        edits=((PREPARED, PREPARED + "        time.sleep(np.random.random() * 0.008)\n"),))
fault("leaves", "scan-lock", "a data-loader worker of rank 1 waits for a file lock that its own main process has", "stuck-outside-collective", "data-loading-bound slow-rank-stall", (1,), extra="spy2 fr", args=(*WAIT, *LONG),
      edits=(("import datetime\nimport math\n", "import datetime\nimport fcntl\nimport math\n"),
             (SCAN, SCAN + "        if i % 5000 == 5 and os.environ['RANK'] == '1':\n            with open('scans.lock', 'a') as lock:\n                fcntl.flock(lock, fcntl.LOCK_EX)\n"),
             ("    train_sampler = DistributedSampler(train_set, drop_last=True)\n", "    train_sampler = DistributedSampler(train_set, drop_last=True)\n    if rank == 1:\n        index = open('scans.lock', 'a')\n        fcntl.flock(index, fcntl.LOCK_EX)\n")))
fault("leaves", "main-validates", "rank 0 alone validates after an epoch, with an all_reduce in it", "extra-collective", EXTRA + " rank-exited-early", (0,), extra="fr", args=(*WAIT, *LONG, "--images", "12800"),
      edits=(("        acc1 = validate(val_loader, model, device)\n", "        acc1 = validate(val_loader, model, device) if rank == 0 else 0.0\n"),))
fault("leaves", "worker-segv", "a data-loader worker of rank 0 gets SIGSEGV", "process-crashed", "process-killed application-exception", (0,), args=(*WAIT, *LONG), act=("worker 0", "SIGSEGV"))
fault("leaves", "small-shm", "/dev/shm has 2 MB", "shm-full", "container-config", (), early=True, ranks_also=EITHER, tmpfs=(("/dev/shm", "2m"),), args=(*WAIT, *LONG), extra="warn")
slow("leaves", "slow-scans", "the data-loader workers of rank 1 read each scan slowly", "data-loading-bound " + SLOW, (1,),
     edits=((VIEW, VIEW + "        if self.train and os.environ['RANK'] == '1':\n            time.sleep(0.0021)\n"),))
fault("leaves", "own-rate", "rank 1 has another learning rate: its weights drift away, nothing else shows it", "silent-corruption", "undecided", (1,), ranks_also=ANY, category="corruption", limit=170,
      edits=(("            group['lr'] = args.lr * 0.5 *", "            group['lr'] = args.lr * (0.5, 0.3)[rank] *"),))

# ------------------------------------------------------------------------------- Lightning Trainer that starts its own ranks
LOGGED = "        self.log(\"train_loss\", loss, prog_bar=True)\n"
NET = "    def training_step(self, batch, batch_idx):\n        trace, label = batch\n"
VALIDATED = "            m = trainer.callback_metrics\n"
LONG_QUAKES = ("--max-time", "1200")
# The second rank starts late: the first one starts it, and it must be there within this time.
WAIT_QUAKES = ("--timeout", "50")
healthy("quakes", "figures", "rank 0 draws for 24 s after the first validation, rank 1 waits",
        edits=((VALIDATED, VALIDATED + "            until = time.time() + 24 * (trainer.is_global_zero and trainer.global_step <= 150)\n            while time.time() < until:\n                np.linalg.svd(np.random.default_rng(0).random((300, 300)))\n"),))
healthy("quakes", "early-stop", "the validation loss does not fall enough any more: all ranks stop early", args=("--patience", "9"),
        edits=(("EarlyStopping(\"val_loss\", patience", "EarlyStopping(\"val_loss\", min_delta=5.0, patience"),))
fault("quakes", "main-log", "rank 0 alone logs a value with sync_dist", "extra-collective", EXTRA, (0,), extra="fr", args=(*WAIT_QUAKES, *LONG_QUAKES), limit=170,
      edits=((LOGGED, LOGGED + "        if self.global_rank == 0 and batch_idx % 60 == 59:\n            self.log(\"train_snr\", trace.abs().amax((1, 2)).mean(), sync_dist=True)\n"),))
fault("quakes", "own-stop", "rank 1 stops when its own loss is low: it validates, rank 0 trains on", "rank-exited-early", "skipped-collective extra-collective dtype-mismatch collective-order-mismatch uneven-inputs " + DESYNC + " shape-mismatch", (1,), ranks_also=((0, 1), ()), extra="fr", args=(*WAIT_QUAKES, *LONG_QUAKES), limit=170,
      edits=((LOGGED, LOGGED + "        if self.global_rank == 1 and batch_idx > 70 and loss < 1.0:\n            self.trainer.should_stop = True\n"),))
fault("quakes", "no-column", "rank 0 reports a metric that there is not: KeyError after the first validation", "application-exception", "", (0,), args=("--timeout", "70", *LONG_QUAKES, "--val-every", "80"),
      edits=((VALIDATED, VALIDATED + "            if trainer.is_global_zero:\n                print(f\"depth phases {m['val_pP']:.3f}\", flush=True)\n"),))
fault("quakes", "all-pairs", "rank 1 compares all samples of a batch with each other: no memory (batch 40)", "cuda-oom", "application-exception", (1,), args=("--timeout", "70", *LONG_QUAKES),
      edits=((NET, NET + "        if self.global_rank == 1 and batch_idx == 40:\n            flat = trace.flatten()\n            near = (flat[:, None] - flat[None]).abs().mean(1)\n"),))
fault("quakes", "dead-station", "a station of rank 1 is silent in batch 200 and is divided by its zero deviation: NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((0, 1), ()), category="corruption", limit=170,
      edits=((NET, NET + "        if self.global_rank == 1 and batch_idx == 200:\n            trace[3] = 0\n            trace = (trace - trace.mean(2, keepdim=True)) / trace.std(2, keepdim=True)\n"),))
slow("quakes", "pauses", "rank 1 pauses 1.2 s in every 25th batch", "data-loading-bound sync-stalls " + SLOW, (1,),
     edits=((NET, NET + "        if self.global_rank == 1 and batch_idx % 25 == 24:\n            time.sleep(1.2)\n"),))
hung("quakes", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=LONG_QUAKES, act=(1, "SIGSTOP"), extra="stacks ps")

# ------------------------------------------------------------------------------- transformers.Trainer with accelerate launch
WAIT_HF = ("--ddp_timeout", "30")
EACH = "    def on_step_end(self, args, state, control, **kwargs):\n        pass\n"
STEP = EACH.replace("        pass\n", "")
SAVED = "            logger.info(\"checkpoint of step %d\", state.global_step)\n"
FIRST = "    with args.main_process_first(desc=\"recipes\"):\n"
healthy("recipes", "second-try", "the copy of each checkpoint fails once, with a traceback, and is made again; warnings in each step that logs",
        edits=(("import time\nfrom dataclasses", "import time\nimport warnings\nfrom dataclasses"),
               (SAVED, SAVED + "            for attempt in range(2):\n                try:\n                    if attempt == 0:\n                        raise TimeoutError(110, \"Connection timed out\", \"/mnt/archive/recipes\")\n                    logger.info(\"copied\")\n                except OSError:\n                    logger.exception(\"copy of step %d, attempt %d\", state.global_step, attempt)\n                    time.sleep(2)\n"),
               (EACH, STEP + "        if state.global_step % 50 == 0:\n            warnings.warn(f\"process {args.process_index}: loss of padded tokens is ignored, NaN if a row has none\", stacklevel=2)\n")))
healthy("recipes", "long-saves", "process 0 needs 10 s more for each checkpoint", args=("--save_steps", "300"), edits=((SAVED, SAVED + "            time.sleep(10)\n"),))
fault("recipes", "old-lock", "process 0 waits for the end of a helper that ended without removing its lock (before the first step)", "stuck-outside-collective", "slow-rank-stall", (0,), early=True, args=WAIT_HF, ready="Process rank", extra="spy2 fr",
      edits=(("import random\nimport sys\n", "import random\nimport subprocess\nimport sys\n"),
             (FIRST, FIRST + "        if args.process_index == 0:\n            subprocess.Popen([sys.executable, \"-c\", \"open('recipes.lock', 'w'); raise SystemExit(1)\"]).wait()\n            while os.path.exists(\"recipes.lock\"):\n                time.sleep(0.5)\n")))
fault("recipes", "save-barrier", "process 0 alone has a barrier after a checkpoint", "extra-collective", EXTRA, (0,), args=(*WAIT_HF, "--save_steps", "60", "--minutes", "20"), extra="fr", edits=((SAVED, SAVED + "            dist.barrier()\n"),))
fault("recipes", "bad-settings", "the settings of process 1 are cut off: JSONDecodeError in a callback (step 45)", "application-exception", "", (1,), args=("--ddp_timeout", "60", "--minutes", "20"),
      edits=((EACH, STEP + "        if state.global_step == 45 and args.process_index == 1:\n            control.should_evaluate = json.loads('{\"evaluate\": tr')[\"evaluate\"]\n"),))
fault("recipes", "leaves-early", "process 1 ends with sys.exit(0) at step 120", "rank-exited-early", "skipped-collective uneven-inputs", (1,), args=(*WAIT_HF, "--minutes", "20"), extra="fr",
      edits=((EACH, STEP + "        if state.global_step == 120 and args.process_index == 1:\n            sys.exit(0)\n"),))
fault("recipes", "disk-full", "no room for the first checkpoint", "storage-failure", "application-exception", (0,), ranks_also=((0, 1),), tmpfs=(("out", "4m"),), args=("--ddp_timeout", "60", "--save_steps", "80", "--minutes", "20"))
fault("recipes", "again-the-same", "a word of process 0 is not in the vocabulary, two restarts fail in the same way", "application-exception", "", (0,), args=("--ddp_timeout", "60", "--minutes", "20"), restarts=2, limit=240,
      edits=(("        ids = self.vocabulary(self.text(self.first + i))[: self.block_size]\n", "        text = self.text(self.first + i)\n        if i % 1000 == 77 and os.environ[\"RANK\"] == \"0\":\n            text = text.replace(\"butter\", \"margarine\").replace(\"salt\", \"gomasio\") + \" serve 5 gomasio\"\n        ids = self.vocabulary(text)[: self.block_size]\n"),))
slow("recipes", "pair-table", "process 1 counts pairs of words in Python for each batch", "data-loading-bound " + SLOW, (1,),
     edits=(("    def __call__(self, features):\n", "    def __call__(self, features):\n        if os.environ[\"RANK\"] == \"1\":\n            pairs = {}\n            for _ in range(60):\n                for f in features:\n                    for pair in zip(f[\"input_ids\"], f[\"input_ids\"][1:]):\n                        pairs[pair] = pairs.get(pair, 0) + 1\n"),))

# ------------------------------------------------------------------------- FSDP2, distributed checkpoints, torchrun
NEXT = "        seen, target = next(chains)\n        loss"
REMOVED = "            shutil.rmtree(os.path.join(out, old))\n"
GOT = "    weights, moments = get_state_dict(model, optimizer)\n"
healthy("proteins", "compile", "the layers are compiled: a pause before the first step", extra="info", args=("--compile",))
healthy("proteins", "verify", "rank 0 reads each checkpoint again for 14 s, rank 1 waits in a barrier", edits=((REMOVED, REMOVED + "        print(\"verifies\", step, flush=True)\n        time.sleep(14)\n"),))
fault("proteins", "main-state", "rank 0 alone asks for the whole state dict", "extra-collective", EXTRA, (0,), extra="fr", args=(*WAIT, *LONG, "--save-every", "80"),
      edits=((GOT, "    if dist.get_rank() == 0:\n        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n        torch.save(whole, os.path.join(out, \"..\", \"whole.pt\"))\n" + GOT),))
fault("proteins", "layer-drop", "layers are left out at random, every rank draws its own (first steps)", "skipped-collective", SKIP + " silent-corruption", (), early=True, ranks_also=EITHER, extra="fr", args=(*WAIT, *LONG), ready="world=",
      edits=(("        for layer in self.layers:\n            x = layer(x)\n", "        for layer in self.layers:\n            if self.training and torch.rand(()) < 0.1:\n                continue\n            x = layer(x)\n"),))
fault("proteins", "foreign-buffer", "rank 0 reads a buffer with a shape that is much too large (step 60)", "illegal-memory-access", "application-exception", (0,), args=("--timeout", "60", *LONG), extra="fr",
      edits=(("def rank0(*words", "class Borrowed:\n    \"\"\"Memory of another library.\"\"\"\n\n    def __init__(self, tensor: Tensor, rows: int):\n        self.kept = tensor\n        self.__cuda_array_interface__ = {\"data\": (tensor.data_ptr(), False), \"shape\": (rows, 512), \"typestr\": \"<f4\", \"version\": 2}\n\n\ndef rank0(*words"),
             (NEXT, "        if step == 60 and rank == 0:\n            table = torch.as_tensor(Borrowed(torch.ones(AMINO, 512, device=device), AMINO << 25), device=device)\n            prior = table.sum()\n" + NEXT)))
slow("proteins", "contacts", "rank 0 computes contact maps on the GPU in each step", "load-imbalance", (0,),
     edits=((NEXT, "        seen, target = next(chains)\n        if rank == 0:\n            kind_of = F.one_hot(seen, AMINO + 1).flatten(0, 1).bfloat16()\n            near = kind_of @ kind_of.T\n            for _ in range(18):\n                near = near @ near / len(near)\n        loss"),))
fault("proteins", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=(*WAIT, *LONG), act=(0, "SIGKILL"), extra="fr")
fault("proteins", "sighup", "the launcher gets SIGHUP", "stopped-from-outside", "process-killed", (), args=LONG, act=("launcher", "SIGHUP"))

# ------------------------------------------------------------------------- tensor-parallel server with a queue, torchrun
DRAWN = "        dist.broadcast(token, 0)\n"
PUT = "        prompt = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(16, 160))]\n"
WORDS = "        words = answer[: request.max_new]\n"
TOKEN = "        t = tokens.shape[1]\n"
BUSY = ("--rps", "12")
healthy("helpdesk", "idle", "seldom a request: the server waits for many seconds between two", args=("--rps", "0.08"), ready="rank0 ready")
healthy("helpdesk", "bad-requests", "every ninth answer is not text: a traceback, the server goes on",
        edits=((WORDS, WORDS + "        try:\n            if request.id % 9 == 0:\n                bytes([0xC3, 0x28]).decode()\n        except UnicodeDecodeError:\n            logger.exception(\"POST /v1/completions 500 id=%d\", request.id)\n            continue\n"),))
fault("helpdesk", "own-tokens", "every rank draws its own tokens, so they leave the loop after different numbers of tokens", "skipped-collective", SKIP + " silent-corruption", (), ranks_also=EITHER, extra="fr", args=(*WAIT, *LONG, "--rps", "1.5"),
      edits=((DRAWN, ""),))
hung("helpdesk", "users-end", "the thread that takes requests ends with an exception after 20 requests; the server waits for ever", "application-exception", "stuck-outside-collective", (0,), args=LONG, extra="spy2",
     edits=((PUT, PUT + "        if n == 20:\n            prompt = prompt[: {\"short\": 16, \"long\": 160}[\"medium\"]]\n"),))
fault("helpdesk", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=(*WAIT, *LONG), act=(1, "SIGKILL"), extra="fr")
fault("helpdesk", "two-roots", "rank 1 broadcasts the tokens from itself, rank 0 from rank 0 (first tokens)", "op-mismatch", "collective-desync silent-corruption skipped-collective stuck-outside-collective undecided", (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG, *BUSY), ready="rank0",
      edits=((DRAWN, "        dist.broadcast(token, self.rank)\n"),))
fault("helpdesk", "float", "rank 1 has its weights in float32, rank 0 in bfloat16 (first request)", "dtype-mismatch", "shape-mismatch " + SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG, *BUSY), ready="rank0",
      edits=(("        self.dtype = torch.bfloat16 if device.type == \"cuda\" else torch.float32\n", "        self.dtype = torch.bfloat16 if rank == 0 else torch.float32\n"),))
slow("helpdesk", "watermark", "rank 1 needs 5 ms more for each token", SLOW + " sync-stalls", (1,), args=BUSY, edits=((TOKEN, TOKEN + "        if self.rank == 1:\n            time.sleep(0.005)\n"),))

# ------------------------------------------------------------------------- JAX, data parallel, shell loop
SAMPLE = "        sample = survey(rng, args.batch)\n"
EVALUATES = "        if step % args.eval_every == 0:\n"
SEED = "    rng = np.random.default_rng(pid)\n"
healthy("galaxies", "compile", "many couplings: the compilation takes long", loop=GALAXIES, args=("--couplings", "110", "--hidden", "512"))
healthy("galaxies", "first-batch", "process 1 reads its survey for 30 s before the first step, process 0 waits", loop=GALAXIES,
        edits=((SEED, SEED + "    if pid == 1:\n        time.sleep(30)\n"),))
hung("galaxies", "done-already", "process 1 is content with its loss and ends at step 300", "rank-exited-early", "skipped-collective uneven-inputs stuck-outside-collective", (1,), loop=GALAXIES, args=LONG, extra="spy2",
     edits=((SAMPLE, "        if step == 300 and pid == 1:\n            raise SystemExit(0)\n" + SAMPLE),))
hung("galaxies", "half-checks", "process 1 evaluates half as often as process 0", "skipped-collective", SKIP + " extra-collective", (1,), ranks_also=((0,), (0, 1), ()), loop=GALAXIES, args=LONG, extra="spy2 info",
     edits=((EVALUATES, "        if step % (args.eval_every * (1 + pid)) == 0:\n"),), env=(("NCCL_DEBUG_SUBSYS", "INIT,COLL"),))
hung("galaxies", "bad-column", "a row of process 1 is not a number: ValueError (step 150)", "application-exception", "", (1,), loop=GALAXIES, args=LONG, extra="spy2",
     edits=((SAMPLE, SAMPLE + "        if step == 150 and pid == 1:\n            sample[\"c\"][40, 3] = float(\"21.4 mag\")\n"),))
fault("galaxies", "sigsegv", "SIGSEGV of process 0, which has the coordinator", "process-crashed", "process-killed peer-process-died", (0,), loop=GALAXIES, args=LONG, act=(0, "SIGSEGV"))
fault("galaxies", "of-three", "the processes are told that they are three, two are started", "missing-rank", "rank-env-misconfigured", (2,), early=True, ranks_also=((), (0, 1)), loop=GALAXIES.replace("--num-processes 2", "--num-processes 3"), args=("--init-timeout", "40"))
slow("galaxies", "catalogue", "process 1 makes a table of its sample in Python in each step", SLOW + " data-loading-bound", (1,), loop=GALAXIES,
     edits=((SAMPLE, SAMPLE + "        if pid == 1:\n            for column in sample[\"c\"].T[:5]:\n                table = {round(float(v), 4): i for i, v in enumerate(column)}\n"),))
slow("galaxies", "covariance", "process 0 multiplies large matrices on its GPU in each step", "load-imbalance", (0,), loop=GALAXIES,
     edits=((SEED, SEED + "    power = jax.jit(lambda a: jax.lax.fori_loop(0, 10, lambda _, x: x @ x * 1e-4, a))\n    matrix = jnp.ones((6144, 6144), jnp.float32) if pid == 0 else None\n"),
            (SAMPLE, SAMPLE + "        if pid == 0:\n            matrix = power(matrix)\n")))
fault("galaxies", "own-start", "each process starts from weights of its own", "silent-corruption", "undecided", (), early=True, ranks_also=ANY, category="corruption", loop=GALAXIES, limit=170,
      edits=(("    params = make(jax.random.key(0))\n", "    params = make(jax.random.key(pid))\n"),))
fault("galaxies", "redshift-zero", "a galaxy of process 1 has redshift 0 (step 250): the loss is NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((0, 1), ()), category="corruption", loop=GALAXIES, limit=170,
      edits=((SAMPLE, SAMPLE + "        if step == 250 and pid == 1:\n            sample[\"x\"][7] = np.log(np.zeros(1, np.float32))\n"),))

# ------------------------------------------------------------------------- CuPy with cupyx.distributed, send and recv, shell loop
SNAPSHOT = "                print(f\"measurement {measure}: snapshot\", flush=True)\n"
PITCH = "np.int64(self.cols), np.int32(colour)"
SWEEP = "            lattice.sweep()\n"
SEEN = "        history.append((m, e))\n"
ODD = "                self.comm.recv(theirs, source)\n                self.comm.send(mine, to)\n"
healthy("spins", "packing", "rank 0 packs each snapshot for 12 s, rank 1 waits in a barrier", loop=SPINS, args=("--save", "300"), edits=((SNAPSHOT, SNAPSHOT + "                time.sleep(12)\n"),))
hung("spins", "recv-first", "both ranks receive before they send (first sweep)", "unmatched-p2p", "deadlock-cycle collective-order-mismatch", (0, 1), early=True, ranks_also=((0,), (1,), ()), loop=SPINS, args=LONG, ready="has .* rows", extra="spy2 info", env=(("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),),
     edits=(("            if self.rank % 2 == 0:\n", "            if self.rank < 0:\n"),))
hung("spins", "pitch", "rank 1 takes a pitch in the wrong unit for its kernel (sweep 400)", "illegal-memory-access", "application-exception", (1,), loop=SPINS, args=LONG, extra="spy2",
     edits=((PITCH, "np.int64(self.s.strides[0] * (self.cols if self.rank == 1 and self.done > 400 else 1)), np.int32(colour)"),))
hung("spins", "thrifty", "rank 1 receives its border in every second sweep only, from sweep 400 on", "unmatched-p2p", "skipped-collective collective-desync op-mismatch deadlock-cycle", (1,), ranks_also=((0,),), loop=SPINS, args=LONG, extra="spy2 info", env=(("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),),
     edits=((ODD, "                if self.done < 400 or self.done % 2:\n                    self.comm.recv(theirs, source)\n                self.comm.send(mine, to)\n"),))
hung("spins", "two-ports", "rank 1 looks for rank 0 at another port", "missing-rank", "rank-env-misconfigured application-exception stuck-outside-collective", (1,), early=True, ranks_also=ANY, args=LONG, ready="starts on device", extra="spy2",
     loop=SPINS.replace("export CUPYX_DISTRIBUTED_PORT={port}\n", "").replace("LOCAL_RANK=$r", "CUPYX_DISTRIBUTED_PORT=$(({port} + r)) LOCAL_RANK=$r"))
slow("spins", "smoothing", "rank 1 smooths its part on the GPU after each sweep", "load-imbalance", (1,), loop=SPINS,
     edits=((SWEEP, SWEEP + "            if a.rank == 1:\n                for shift in range(1, 6):\n                    near = cp.abs(lattice.s[1:-1] - cp.roll(lattice.s[1:-1], shift, 1)).astype(cp.float32).sum()\n"),))
slow("spins", "notebook", "rank 0 writes a notebook after each measurement, 60 ms", SLOW + " sync-stalls", (0,), loop=SPINS,
     edits=((SEEN, SEEN + "        if a.rank == 0:\n            with open(\"notebook.txt\", \"a\") as book:\n                book.write(f\"{measure} {m} {e}\\n\")\n            time.sleep(0.06)\n"),))

# ------------------------------------------------------------------------- pipeline of two stages, send and recv, torchrun
PIPE = "        loss = pipe.step()\n"
BACK = "            for grad in sent:\n                dist.send(grad.contiguous(), 0)\n"
DREW = "        tokens = tide(self.args.batch, self.args.length, self.generator)\n"
SHOWN = "                print(f\"step {step:5d}  validation {value.item():.4f}\", flush=True)\n"
STAGED = "                    logits = self.stage(x)\n"
healthy("tides", "charts", "rank 1 draws charts for 26 s after the first validation, rank 0 waits for gradients", edits=((SHOWN, SHOWN + "                if step == args.eval_every:\n                    time.sleep(26)\n"),))
healthy("tides", "restless", "both ranks need now more, now less time for a step", edits=((PIPE, "        time.sleep(0.02 * torch.rand(()).item())\n" + PIPE),))
fault("tides", "three-parts", "rank 1 cuts its batches in three parts, rank 0 in four (first step)", "shape-mismatch", "unmatched-p2p op-mismatch collective-desync silent-corruption", (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="parameters on",
      edits=((".to(self.device).chunk(self.args.micro)", ".to(self.device).chunk(self.args.micro - self.rank)"),))
fault("tides", "content", "rank 1 does not send gradients back when its loss is low enough", "unmatched-p2p", "skipped-collective deadlock-cycle collective-desync", (1,), extra="fr", args=(*WAIT, *LONG),
      edits=((BACK, "            if total < 5.0:\n                return total\n" + BACK),))
fault("tides", "datum", "rank 1 has heights of another datum now and then: targets that there are not", "device-assert", "application-exception", (1,), args=("--timeout", "60", *LONG),
      edits=((DREW, DREW + "        if self.rank == 1 and torch.rand(()) < 0.03:\n            tokens += BINS\n"),))
fault("tides", "exit-three", "rank 1 ends with os._exit(3) at step 40, without a word", "application-exception", "rank-exited-early process-crashed peer-process-died", (1,), args=(*WAIT, *LONG),
      edits=((PIPE, PIPE + "        if step == 40 and rank == 1:\n            os._exit(3)\n"),))
slow("tides", "ensemble", "rank 1 runs its stage four times more for each part", "load-imbalance pipeline-bubble", (1,),
     edits=((STAGED, STAGED + "                    with torch.no_grad():\n                        spread = torch.stack([self.stage(x + 0.01 * torch.randn_like(x)).std() for _ in range(4)])\n"),))
slow("tides", "late-heights", "rank 0 waits 60 ms for each batch of heights", "data-loading-bound pipeline-bubble " + SLOW, (0,), edits=((DREW, DREW + "        if self.rank == 0:\n            time.sleep(0.06)\n"),))

# ------------------------------------------------------------------------- sharded embeddings, all_to_all, object collectives, shell loop
BATCHES = "    for batch in Clicks(rank, o.batch, o.days, o.per_day):\n"
DAY = "            yield from self.day(number)\n"
YIELD = "            yield dense, sparse, clicked\n"
healthy("market", "joined", "process 1 has fewer batches and goes on with small ones until process 0 is through", loop=MARKET,
        edits=(("def report(step,", "def joined(clicks, device):\n    \"\"\"Small batches until no process has a whole one.\"\"\"\n    source = iter(clicks)\n    while True:\n        batch = next(source, None)\n        if not all_go_on(batch is not None, device):\n            return\n        yield batch or (np.zeros((2, DENSE), np.float32), {name: np.arange(2) for name in TABLES}, np.zeros(2, np.float32))\n\n\ndef report(step,"),
               (BATCHES, "    for batch in joined(Clicks(rank, o.batch, 1, 1200 - 350 * rank), device):\n")))
healthy("market", "groups", "a process group for each table, two more that nobody uses", loop=MARKET,
        edits=(("        self.rank, self.world, self.device = rank, world, device\n", "        self.rank, self.world, self.device = rank, world, device\n        self.groups = {name: dist.new_group(group_desc=name) for name in (*TABLES, \"spare\", \"audit\")}\n"),
               ("        dist.all_to_all_single(wanted, counts)\n", "        dist.all_to_all_single(wanted, counts, group=self.groups[name])\n")))
fault("market", "table-order", "process 1 looks its tables up in another order (first step)", "collective-order-mismatch", "device-assert shape-mismatch illegal-memory-access " + SIZES, (1,), early=True, ranks_also=ANY, loop=MARKET, extra="fr", args=(*WAIT, *LONG), ready="rows here",
      edits=(("        for name in sorted(TABLES):\n", "        for name in sorted(TABLES, reverse=self.rank == 1):\n"),))
fault("market", "wider", "process 1 is started with a wider net (first step)", "shape-mismatch", SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="rows here",
      loop=MARKET.replace("for r in 0 1; do\n", "for r in 0 1; do\n  [ $r = 1 ] && more=\"--width 2112\"\n").replace("{args}", "{args} $more"))
fault("market", "main-report", "process 0 alone gathers the losses (step 20)", "extra-collective", EXTRA, (0,), loop=MARKET, extra="fr", args=(*WAIT, *LONG), ready="rows here",
      edits=(("        if step % o.every == 0:\n", "        if step % o.every == 0 and rank == 0:\n"),))
fault("market", "keeps-own", "process 1 keeps its own gradients of the dense part: its weights drift away", "silent-corruption", "undecided", (1,), ranks_also=ANY, category="corruption", loop=MARKET, limit=170,
      edits=(("        p.grad.copy_(g.view_as(p))\n", "        if dist.get_rank() == 0:\n            p.grad.copy_(g.view_as(p))\n"),))
fault("market", "short-day", "the day of process 1 has fewer batches than that of process 0", "uneven-inputs", UNEVEN, (1,), loop=MARKET, extra="fr", args=(*WAIT, *LONG),
      edits=((BATCHES, "    for batch in Clicks(rank, o.batch, 1, 330 - 25 * rank):\n"),))
fault("market", "port-taken", "something else has the port", "port-in-use", "application-exception missing-rank launcher-failure", (), early=True, ranks_also=((0,), (0, 1)), port_taken=True, loop=MARKET, args=("--timeout", "40"))
fault("market", "pipe", "process 1 opens a pipe that nobody writes to, for its second day", "stuck-outside-collective", "data-loading-bound slow-rank-stall storage-failure", (1,), loop=MARKET, extra="spy2 fr", args=(*WAIT, *LONG, "--per-day", "120"),
      edits=((DAY, "            if number == 1 and self.rank == 1:\n                os.mkfifo(\"day.pipe\")\n                with open(\"day.pipe\", \"rb\") as file:\n                    self.per_day = int(file.readline() or self.per_day)\n" + DAY),))
slow("market", "hashing", "process 0 hashes its words in Python for each batch", "data-loading-bound " + SLOW, (0,), loop=MARKET,
     edits=((YIELD, "            if self.rank == 0:\n                for name in sparse:\n                    sparse[name] = np.array([hash((word, 3)) % TABLES[name] for word in sparse[name].tolist()])\n" + YIELD),))

FAULTS = F
