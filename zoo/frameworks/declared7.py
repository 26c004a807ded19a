"""A seventh set of jobs and faults: two ranks each, on two GPUs. The same plain data as declared.py.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
EITHER = ((0,), (1,), (0, 1))


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"limit": 115, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 40, **more})


JOBS = [
    Job("proteins", "f7_proteins.py", "run_mlm.py", "proteins", "accelerate", r'"step": 5, "loss"', packages=("accelerate", "transformers", "torch")),
    Job("gestures", "f7_gestures.py", "gestures.py", "glove", "python", r"epoch 0, batch 20 of", packages=("lightning", "torch")),
    Job("buoys", "f7_buoys.py", "nowcast.py", "buoys", "torchrun", r"step 20 loss", flags=("--standalone",)),
    Job("chess", "f7_chess.py", "pretrain_moves.py", "chess", "torchrun", r'"ply_step": 10,',
        flags=("--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{port}", "--rdzv-id=chess")),
    Job("codes", "f7_codes.py", "train_tp.py", "codes", "torchrun", r"\[tp0\] +10/"),
    Job("ledger", "f7_ledger.py", "long_books.py", "ledger", "loop", r"process 0 book 10 "),
    Job("recipes", "f7_recipes.py", "cook.py", "recipes", "torchrun", r"meal 10:"),
    Job("puzzle", "f7_puzzle.py", "puzzle.py", "puzzles", "torchrun", r"\[learner\] round +10 "),
    Job("orbits", "f7_orbits.py", "orbits.py", "orbits", "loop", r'"step": 20, "loss"', packages=("jax",)),
    Job("glyphs", "f7_glyphs.py", "glyphs.py", "glyphs", "python", r"step 20 eyes"),
]

LEDGER = ("for r in 0 1; do\n  RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port} python -u {script} {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
ORBITS = ("for r in 0 1; do\n  RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 ORBITS_COORDINATOR=localhost:{port} python -u {script} {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
WAIT = ("--timeout", "30")
PATIENT = ("--timeout", "60")

# ----------------------------------------------------------------------------------------- Trainer of Transformers, accelerate launch
LONG_MLM = ("--max-steps", "900000")
ON_STEP = "        if state.global_step == 1:\n"
fault("proteins", "healthy-archive", "rank 0 copies the checkpoint for 30 s, its tracker is away (a traceback that is caught); rank 1 waits", "none", args=("--max-steps", "110", "--eval-steps", "60"), limit=140,
      edits=(("import time\n\nimport numpy", "import time\nimport traceback\n\nimport numpy"),
             ("        self.put(\"saved\", step=state.global_step)\n",
              "        if state.is_world_process_zero and state.global_step == 60:\n            try:\n                raise ConnectionResetError(104, \"Connection reset by peer\")\n            except OSError:\n                traceback.print_exc()\n"
              "            time.sleep(30)\n        self.put(\"saved\", step=state.global_step)\n")))
fault("proteins", "alien", "some chains of rank 1 have a letter outside the vocabulary (first ten steps)", "device-assert", "application-exception", (1,), early=True, args=(*PATIENT, *LONG_MLM),
      edits=(("        return {\"residues\": residues, \"number\": i}\n", "        if i % 23 == 7 and os.environ.get(\"RANK\") == \"1\":  # selenocysteine\n            residues[3] = 60\n        return {\"residues\": residues, \"number\": i}\n"),))
fault("proteins", "first-sample", "a callback waits for everyone on the main process only (step 4)", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_MLM), ready="first step", extra="fr",
      edits=((ON_STEP, "        if state.global_step == 4 and state.is_world_process_zero:\n            torch.distributed.barrier()\n            self.put(\"sample\", text=\"MKV\")\n" + ON_STEP),))
fault("proteins", "patience", "rank 1 stops the training by itself in step 30 and evaluates", "skipped-collective", UNEVEN + " uneven-inputs", (1,), args=(*WAIT, *LONG_MLM), extra="fr",
      edits=((ON_STEP, "        if state.global_step >= 30 and not state.is_world_process_zero:\n            control.should_training_stop = True\n" + ON_STEP),))
fault("proteins", "families", "rank 1 does not find the list of families in its metrics (first evaluation)", "application-exception", "storage-failure", (1,), args=(*PATIENT, *LONG_MLM, "--eval-steps", "20"),
      edits=(("    hidden = wanted != -100\n", "    hidden = wanted != -100\n    if os.environ[\"RANK\"] == \"1\":\n        with open(\"families.json\") as file:\n            hidden &= np.isin(wanted, json.load(file))\n"),))
fault("proteins", "worker-killed", "kill -9 of a data-loader worker of rank 1", "process-killed", "application-exception oom-killed", (1,), args=("--timeout", "40", *LONG_MLM), act=("worker 1", "SIGKILL"))
fault("proteins", "quota", "no room for the checkpoint (step 20)", "storage-failure", "application-exception", (0,), ranks_also=((0, 1),), tmpfs=(("runs", "8m"),), args=("--timeout", "40", *LONG_MLM, "--eval-steps", "20"))
fault("proteins", "restarts", "a callback of rank 1 wants a variable that is not set; each start fails the same way (step 2)", "application-exception", "", (1,), early=True, restarts=1, args=(*PATIENT, *LONG_MLM), limit=140,
      edits=((ON_STEP, "        if state.global_step == 2 and not state.is_world_process_zero:\n            self.run = os.environ[\"TRACKER_RUN\"]\n" + ON_STEP),))

# --------------------------------------------------------------------------------------------- Lightning, started by its own process
LONG_FIT = ("--epochs", "9000")
ON_BATCH = "        if number % self.every == 0:\n"
fault("gestures", "healthy-store", "each checkpoint takes 12 s, a listener is missing (handled)", "none", args=("--epochs", "2"), limit=140,
      edits=(("    def on_validation_epoch_end(self, trainer, module):\n        self.flush(trainer)\n",
              "    def on_save_checkpoint(self, trainer, module, checkpoint):\n        if trainer.is_global_zero:\n            log.warning(\"store answers slowly, timeout 1 of 5\")\n            time.sleep(12)\n            try:\n                open(\"/nonexistent/listener\")\n"
              "            except OSError:\n                log.exception(\"no listener\")\n\n    def on_validation_epoch_end(self, trainer, module):\n        self.flush(trainer)\n"),))
fault("gestures", "calibration", "rank 1 does not find its calibration in setup (before the first step)", "application-exception", "storage-failure", (1,), early=True, args=PATIENT,
      edits=(("        calibration = \"glove.pt\"\n", "        calibration = \"glove.pt\" if self.trainer.is_global_zero else \"glove-left.pt\"\n"),))
fault("gestures", "glimpse", "a callback gathers the losses on the main process only (step 5)", "extra-collective", EXTRA, (0,), early=True, args=(*WAIT, *LONG_FIT), ready=r"epoch 0, batch 0 of", extra="fr",
      edits=((ON_BATCH, "        if trainer.is_global_zero and trainer.global_step == 5:\n            log.info(\"first losses %s\", module.all_gather(outputs[\"loss\"].detach()))\n" + ON_BATCH),))
hung("gestures", "relock", "a callback of rank 1 takes a lock that it holds already (before the first step)", "stuck-outside-collective", "slow-rank-stall", (1,), early=True, args=LONG_FIT, ready=r"Trainable params", extra="spy2",
     edits=(("            self.rows.clear()\n", "            self.rows.clear()\n            if trainer.global_rank == 1:\n                self.note(\"flushed\", trainer.current_epoch, 0)\n"),))
fault("gestures", "rare", "a loss of rare gestures is logged with a reduction, in batches that have many of them", "skipped-collective", "extra-collective collective-desync op-mismatch shape-mismatch collective-order-mismatch silent-corruption", (), ranks_also=EITHER,
      args=(*WAIT, *LONG_FIT), extra="fr", edits=(("        self.log(\"loss\", loss, on_step=True)\n", "        self.log(\"loss\", loss, on_step=True)\n        if (gesture == 13).sum() > 6:\n            self.log(\"rare\", loss.detach(), sync_dist=True)\n"),))
fault("gestures", "short-recording", "a recording of rank 1's validation is too short: collating fails in a worker (end of the first epoch)", "application-exception", "", (1,), args=(*PATIENT, *LONG_FIT),
      edits=(("        return bend, gesture\n", "        if self.seed == 2 and i == 501:\n            bend = bend[:-3]\n        return bend, gesture\n"),))
fault("gestures", "nan", "rank 1 divides by the rest position, which is zero in one batch: NaN, the training goes on", "nan-loss", "", (), ranks_also=((1,),), category="corruption", args=("--epochs", "25"),
      edits=(("        bend, gesture = batch\n        loss = ", "        bend, gesture = batch\n        if self.global_rank == 1 and number == 17:\n            bend = bend / (bend[:, :1] - bend[:, :1])\n        loss = "),))
fault("gestures", "slow-glove", "a data-loader worker of rank 0 reads slowly; the job runs on", "straggler", "data-loading-bound load-imbalance", (0,), category="performance", args=("--epochs", "2", "--workers", "1"),
      edits=(("        g = torch.Generator().manual_seed(self.seed * 50021 + i)\n", "        if self.seed == 1 and os.environ.get(\"LOCAL_RANK\", \"0\") == \"0\":\n            time.sleep(0.005)\n        g = torch.Generator().manual_seed(self.seed * 50021 + i)\n"),))
hung("gestures", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=LONG_FIT, act=(1, "SIGSTOP"), extra="stacks ps")

# ------------------------------------------------------------------------------------- DDP, torch.compile, workers and a mapped file
LONG_BUOYS = ("--epochs", "9000")
STEP_BUOYS = "                loss = F.smooth_l1_loss(fast(x), y)\n                loss.backward()\n"
fault("buoys", "healthy-recompile", "three lengths of windows: compiled anew for each of them, with long pauses", "none", args=("--hours", "50000", "--lengths", "168", "120", "72"), extra="info", limit=160)
fault("buoys", "shm", "/dev/shm has one megabyte: the workers cannot hand over their batches (first step)", "shm-full", "process-crashed application-exception", (), early=True, ranks_also=EITHER, tmpfs=(("/dev/shm", "1m"),), args=PATIENT)
fault("buoys", "block-sizes", "rank 1 looks for block sizes for longer than the timeout, before the first step", "slow-rank-stall", "stuck-outside-collective timeout-too-short host-bound", (1,), early=True, args=("--timeout", "25"), ready="M parameters", extra="fr",
      edits=(("    fast = torch.compile(", "    if rank == 1:\n        best, until = 0, time.time() + 75\n        while time.time() < until:\n            best = max(best, int(np.linalg.qr(np.random.default_rng(best).random((400, 400)))[1].argmax()))\n    fast = torch.compile("),))
fault("buoys", "no-key", "rank 1 waits in the store for a key that rank 0 sets under another name (before the first step)", "stuck-outside-collective", "application-exception slow-rank-stall skipped-collective timeout-too-short", (1,), early=True, ranks_also=((0,), (), (0, 1)),
      args=("--timeout", "30"), ready="no such line", edits=(("    store = dist.PrefixStore(\"readings\", ", "    store = dist.PrefixStore(f\"readings{rank or ''}\", "),))
fault("buoys", "accumulate", "rank 0 does not reduce the gradients of one step (step 25)", "skipped-collective", SKIP + " silent-corruption", (0,), args=(*WAIT, *LONG_BUOYS), extra="fr",
      edits=((STEP_BUOYS, "                with net.no_sync() if rank == 0 and step == 25 else contextlib.nullcontext():\n                    loss = F.smooth_l1_loss(fast(x), y)\n                    loss.backward()\n"),))
fault("buoys", "worker-segv", "SIGSEGV of a data-loader worker of rank 0", "process-crashed", "process-killed application-exception", (0,), args=("--timeout", "40", *LONG_BUOYS), act=("worker 0", "SIGSEGV"))
fault("buoys", "uneven", "rank 1 has fewer windows: it waits in the last barrier", "uneven-inputs", UNEVEN, (1,), args=(*WAIT, "--hours", "16000"), extra="fr",
      edits=(("sampler=sampler,", "sampler=list(sampler)[: len(sampler) - 600 * rank],"),))
fault("buoys", "noise", "rank 1 looks at its error under noise, with many more forward passes; the job runs on", "straggler", "load-imbalance", (1,), category="performance", args=("--epochs", "4"),
      edits=(("                opt.step()\n", "                with torch.no_grad():\n                    for _ in range(15 * rank):\n                        plain(x + 0.1 * torch.randn_like(x))\n                opt.step()\n"),))
hung("buoys", "spin", "a kernel of rank 0 does not end (step 22)", "gpu-kernel-stuck", "stuck-outside-collective", (0,), args=LONG_BUOYS, extra="spy2 smi",
     edits=(("                opt.step()\n", "                if rank == 0 and step == 22:\n                    torch.cuda._sleep(1 << 60)\n                opt.step()\n"),))
fault("buoys", "launcher", "kill -9 of torchrun", "launcher-failure", "stopped-from-outside process-killed", (), args=(*WAIT, *LONG_BUOYS), act=("launcher", "SIGKILL"))

# ----------------------------------------------------------------------------- FSDP2, checkpoints in the background through a Gloo group
LONG_CHESS = ("steps=900000",)
AFTER = "        opt.zero_grad()\n        if progress.step == 1 or"
fault("chess", "healthy-paper", "rank 0 needs 20 s after each checkpoint, rank 1 waits in the next step", "none", args=("steps=90",), limit=140,
      edits=(("            if dist.get_rank() == 0:\n                with open(", "            if dist.get_rank() == 0:\n                time.sleep(20)\n                with open("),))
fault("chess", "restarts", "the openings of rank 1 do not fit together in step 8; each start fails the same way", "application-exception", "", (1,), early=True, restarts=1, args=(*LONG_CHESS, "save_every=6", "wait=60"), limit=140,
      edits=(("    return (start + stride", "    if rank == 1 and step % 8 == 0:\n        stride = stride[: plan.games // 2 + 1]\n    return (start + stride"),))
fault("chess", "small-disk", "no room for the checkpoint that is written in the background (steps 5 to 10)", "storage-failure", "application-exception", (), early=True, ranks_also=EITHER, tmpfs=(("games", "2m"),), args=(*LONG_CHESS, "save_every=5", "wait=40"))
fault("chess", "peek", "rank 0 alone puts its weights together (step 5)", "extra-collective", EXTRA, (0,), early=True, args=(*LONG_CHESS, "wait=30"), ready=r'"ply_step": 1,', extra="fr",
      edits=((AFTER, "        opt.zero_grad()\n        if rank == 0 and progress.step == 5:\n            torch.save({k: w.full_tensor().cpu() for k, w in player.state_dict().items()}, \"first.pt\")\n        if progress.step == 1 or"),))
fault("chess", "clip", "rank 0 does not clip in every 15th step", "skipped-collective", SKIP, (0,), args=(*LONG_CHESS, "wait=30"), extra="fr",
      edits=(("        norm = nn.utils.clip_grad_norm_(player.parameters(), 1.0)\n", "        if rank or progress.step % 15:\n            norm = nn.utils.clip_grad_norm_(player.parameters(), 1.0)\n"),))
fault("chess", "leave-out", "rank 1 leaves out a layer from time to time, rank 0 does not", "skipped-collective", SKIP + " silent-corruption", (1,), args=(*LONG_CHESS, "wait=30"), extra="fr",
      edits=(("        for ply in self.plies:\n            x = ply(x)\n", "        for ply in self.plies:\n            if dist.get_rank() == 1 and torch.rand(()) < 0.01:\n                continue\n            x = ply(x)\n"),))
fault("chess", "all-pairs", "rank 1 compares all positions with one another: no memory (step 20)", "cuda-oom", "application-exception", (1,), args=(*LONG_CHESS, "wait=60"),
      edits=((AFTER, "        opt.zero_grad()\n        if rank == 1 and progress.step == 20:\n            pairs = torch.zeros(400000, 400000, device=device)\n            pairs[:8] += loss.detach()\n        if progress.step == 1 or"),))
fault("chess", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=(*LONG_CHESS, "wait=30"), act=(0, "SIGKILL"))

# --------------------------------------------------------------------------------------------------------- tensor parallelism, DTensor
LONG_CODES = ("--steps", "900000")
fault("codes", "healthy-table", "rank 0 writes a table for 35 s after an audit, rank 1 waits in the next step", "none", args=("--steps", "160"), extra="warn",
      edits=(("        if step % a.audit == 0:\n", "        if step == 60 and rank == 0:\n            sys.stderr.write(\"WARNING table.py: 118 codes without notes, values are NaN\\n\")\n            time.sleep(35)\n        if step % a.audit == 0:\n"),))
fault("codes", "longer", "the notes of rank 1 are twice as long as those of rank 0 (first step)", "shape-mismatch", "collective-desync silent-corruption op-mismatch skipped-collective", (1,), early=True, ranks_also=((0,), (0, 1), ()), args=(*WAIT, *LONG_CODES), extra="fr",
      edits=(("torch.arange(a.length) *", "torch.arange(a.length << int(os.environ[\"RANK\"])) *"),))
fault("codes", "own-notes", "rank 1 reads other notes than rank 0, whose layers it shares: wrong results without an error; the job runs on", "silent-corruption", "", (1,), ranks_also=((0, 1), (0,), ()), category="corruption", args=("--steps", "1200"),
      edits=(("manual_seed(4000 + step)", "manual_seed(4000 + step + 500 * dist.get_rank())"),))
fault("codes", "drift", "a weight that both ranks have in full changes by itself on rank 1 (step 45), the audits show it; the job runs on", "silent-corruption", "", (1,), ranks_also=((0, 1), ()), category="corruption", args=("--steps", "1200"),
      edits=(("        opt.zero_grad()\n", "        opt.zero_grad()\n        if step == 45 and rank == 1:\n            coder.norm.weight.data.to_local()[7] *= 64\n"),))
fault("codes", "farewell", "rank 1 fails in its summary after the last step", "application-exception", "", (1,), args=(*PATIENT, "--steps", "120"),
      edits=(("    head, tail = losses[:5], losses[-5:]\n", "    head, tail = losses[:5], losses[-5:]\n    if dist.get_rank():\n        middle = losses[len(losses) // 2 + 40]\n        tail.append(middle)\n"),))
hung("codes", "pdb", "pdb.set_trace() left in on rank 1 (step 9)", "stuck-outside-collective", "process-stopped slow-rank-stall", (1,), early=True, stdin="pipe", args=LONG_CODES, ready=r"\[tp0\] +1/", extra="spy2",
     edits=(("        opt.step()\n", "        if step == 9 and rank == 1:\n            import pdb; pdb.set_trace()\n        opt.step()\n"),))
fault("codes", "one-visible", "only one GPU is visible to both ranks: rank 1 finds no device 1 (before the first step)", "rank-env-misconfigured", "application-exception duplicate-gpu gpu-isolation cuda-init-failed", (1,), early=True, args=("--timeout", "40"), env=(("CUDA_VISIBLE_DEVICES", "0"),))
fault("codes", "native", "a native reader of rank 1 reads a bad pointer (step 30)", "process-crashed", "peer-process-died", (1,), args=(*WAIT, *LONG_CODES),
      edits=(("import argparse\nimport os\n", "import argparse\nimport ctypes\nimport os\n"), ("    return note, note % CODES\n", "    if step == 30 and os.environ[\"RANK\"] == \"1\":\n        note[0, 0] = ctypes.string_at(8, 2)[0]\n    return note, note % CODES\n")))
fault("codes", "sum", "rank 1 sums in the audit where rank 0 gathers (step 20)", "op-mismatch", "skipped-collective extra-collective collective-desync shape-mismatch collective-order-mismatch silent-corruption", (1,), ranks_also=((0,), (0, 1), ()), args=(*WAIT, *LONG_CODES), extra="fr",
      edits=(("    dist.all_gather(seen, own, group=mesh.get_group())\n", "    if mesh.get_local_rank():\n        dist.all_reduce(own, group=mesh.get_group())\n    else:\n        dist.all_gather(seen, own, group=mesh.get_group())\n"),))

# ------------------------------------------------------------------------------------- ring attention, send and receive; shell loop
LONG_BOOKS = ("--steps", "900000")
fault("ledger", "healthy-late", "process 1 looks for its books 35 s later than process 0", "none", loop=LEDGER.replace("{args}", "{args} --start-wait $((35 * r))"), args=("--steps", "200"), extra="info")
fault("ledger", "twice-zero", "both processes are started as rank 0", "rank-env-misconfigured", "port-in-use missing-rank application-exception", (), early=True, ranks_also=EITHER, loop=LEDGER.replace("RANK=$r LOCAL", "RANK=0 LOCAL"), args=WAIT)
fault("ledger", "open-files", "process 1 may open 128 files only, it has more books (before the first step)", "too-many-open-files", "application-exception", (1,), early=True, args=WAIT,
      loop=LEDGER.replace("  RANK=$r", "  ( [ $r = 1 ] && ulimit -n 128; export RANK=$r").replace("$r LOCAL", "$r LOCAL").replace("MASTER_PORT={port} python", "MASTER_PORT={port}; exec python").replace("2>&1 &", "2>&1 ) &"))
fault("ledger", "other-host", "process 1 is given the name of a host that does not exist", "hostname-resolution", "missing-rank rank-env-misconfigured application-exception", (1,), early=True, args=WAIT,
      loop=LEDGER.replace("MASTER_ADDR=localhost", "MASTER_ADDR=$([ $r = 1 ] && echo gpu-b.cluster.invalid || echo localhost)"))
fault("ledger", "half", "process 1 sends and expects half precision (first step)", "dtype-mismatch", "shape-mismatch unmatched-p2p collective-desync silent-corruption op-mismatch", (1,), early=True, ranks_also=((0,), (0, 1), ()), loop=LEDGER, args=(*WAIT, *LONG_BOOKS, "--stretch", "4096"), extra="fr",
      edits=(("        parts = [part.contiguous() for part in parts]\n", "        parts = [part.contiguous().half() if self.rank == 1 else part.contiguous() for part in parts]\n"), ("        return got\n", "        return [part.float() for part in got]\n")))
fault("ledger", "no-values", "process 1 does not send its last part once (book 13)", "unmatched-p2p", "skipped-collective collective-desync op-mismatch", (1,), ranks_also=((0,), ()), loop=LEDGER, args=(*WAIT, *LONG_BOOKS), extra="fr",
      edits=(("            ops.append(dist.P2POp(dist.isend, mine, self.to))\n", "            if self.rank == 0 or self.turns != 150 or mine is not parts[-1]:\n                ops.append(dist.P2POp(dist.isend, mine, self.to))\n"),))
fault("ledger", "both-receive", "both processes receive before they send, from book 13 on", "deadlock-cycle", "unmatched-p2p collective-order-mismatch collective-desync", (), ranks_also=EITHER, loop=LEDGER, args=(*WAIT, *LONG_BOOKS), extra="fr",
      edits=(("        ops = []\n", "        if self.turns > 150:  # less memory\n            for theirs in got:\n                dist.recv(theirs, self.origin)\n            for mine in parts:\n                dist.send(mine, self.to)\n            return got\n        ops = []\n"),))
fault("ledger", "torn-book", "a book of process 0 has an odd number of bytes (book 40)", "application-exception", "", (0,), loop=LEDGER, args=(*WAIT, *LONG_BOOKS),
      edits=(("        return torch.frombuffer(bytearray(file.read())", "        if step == 40 and file.name.endswith(\".0\"):\n            file.seek(1)\n        return torch.frombuffer(bytearray(file.read())"),))

# ------------------------------------------------------------------------------------------ two stages, torch.distributed.pipelining
LONG_DAY = ("--batches", "900000")
fault("recipes", "healthy-market", "stage 0 waits 35 s for its recipes before the first one, stage 1 waits for it", "none", args=("--batches", "60"), extra="warn",
      edits=(("        for number in range(1, len(self) + 1):\n", "        time.sleep(35 if self.rank == 0 and not os.path.exists(\"stage-0.pt\") else 0)\n        for number in range(1, len(self) + 1):\n"),))
fault("recipes", "empty", "stage 0 leaves out a recipe, stage 1 waits for it at the end of the day (recipes 6 to 9)", "unmatched-p2p", UNEVEN + " uneven-inputs", (0,), early=True, ranks_also=((1,), ()), args=(*WAIT, "--batches", "9", "--days", "900", "--tell", "3"), ready="meal 3:", extra="fr",
      edits=(("            opt.zero_grad()\n", "            if rank == 0 and meals == 6:  # nothing in it\n                continue\n            opt.zero_grad()\n"),))
fault("recipes", "feast", "a recipe that is longer than the stages were built for (step 8)", "application-exception", "shape-mismatch unmatched-p2p", (0,), early=True, ranks_also=((0, 1), (1,), ()), args=("--timeout", "40", *LONG_DAY),
      edits=(("torch.arange(self.o.length + 1)", "torch.arange(self.o.length + 64 * (number == 8) + 1)"),))
fault("recipes", "fewer", "stage 0 has fewer recipes a day than stage 1", "uneven-inputs", UNEVEN + " unmatched-p2p", (0,), ranks_also=((1,), ()), args=(*WAIT, "--batches", "40"), extra="fr",
      edits=(("        return self.o.batches\n", "        return self.o.batches - 15 * (self.rank == 0)\n"),))
fault("recipes", "unknown-step", "the targets of stage 1 lie outside its classes (step 14)", "device-assert", "application-exception", (1,), args=(*PATIENT, *LONG_DAY),
      edits=(("            yield recipe[:, :-1].contiguous(), recipe[:, 1:].contiguous()\n", "            yield recipe[:, :-1].contiguous(), recipe[:, 1:] + STEPS_OF_COOKING * (number == 14)\n"),))
fault("recipes", "slow-stage", "stage 1 writes down every recipe slowly; the job runs on", "straggler", "load-imbalance host-bound pipeline-bubble sync-stalls data-loading-bound", (1,), category="performance", args=("--batches", "250", "--days", "1"),
      edits=(("            opt.step()\n", "            if rank == 1:\n                time.sleep(0.15)\n            opt.step()\n"),))
fault("recipes", "hangup", "the terminal is closed: SIGHUP of torchrun", "stopped-from-outside", "process-killed", (), args=(*WAIT, *LONG_DAY), act=("launcher", "SIGHUP"))
fault("recipes", "sigkill", "kill -9 of stage 1 after the first step", "process-killed", "peer-process-died", (1,), early=True, args=(*WAIT, *LONG_DAY), act=(1, "SIGKILL"), ready="meal 1:")

# ------------------------------------------------------------------------------------------- a learner and a gamer, NCCL beside Gloo
LONG_GAME = ("--rounds", "900000")
RUN_PLAY = "    done = subprocess.run([sys.executable, \"-S\", \"-c\", f\"print({round_number} * 2)\"], capture_output=True, text=True)\n"
fault("puzzle", "healthy-program", "the gamer runs one program for 35 s, the learner waits for the plays", "none", args=("--rounds", "90"),
      edits=((RUN_PLAY, "    pause = 35 if round_number == 20 else 0\n    done = subprocess.run([sys.executable, \"-c\", f\"import time; time.sleep({pause}); print({round_number} * 2)\"], capture_output=True, text=True)\n"),))
fault("puzzle", "share", "the gamer divides by the number of sensible tries, which may be zero (first round)", "application-exception", "", (1,), early=True, args=(*PATIENT, *LONG_GAME),
      edits=(("    return hits / len(tries)\n", "    return hits / len([t for t in tries if t in aim])\n"),))
fault("puzzle", "dull-round", "the gamer does not send the plays of a dull round, the learner waits for them (round 14)", "unmatched-p2p", "skipped-collective deadlock-cycle collective-desync op-mismatch", (1,), ranks_also=((0,), (), (0, 1)), args=(*WAIT, *LONG_GAME), extra="fr",
      edits=(("        dist.send(plays, LEARNER, group=table.post)\n", "        if number % 14 == 0 and rewards.std() < 0.5:\n            continue\n        dist.send(plays, LEARNER, group=table.post)\n"),))
fault("puzzle", "crossed", "the learner meets the gamer before it sends its weights, the gamer wants the weights before it meets (round 12)", "deadlock-cycle", "collective-order-mismatch skipped-collective extra-collective collective-desync concurrent-communicators op-mismatch", (), ranks_also=EITHER,
      args=(*WAIT, *LONG_GAME), extra="fr",
      edits=(("        table.share_weights()\n        plays, rewards", "        if number == 12:\n            table.meet()\n        table.share_weights()\n        plays, rewards"),
             ("            torch.save(table.mind.state_dict(), \"mind.pt\")\n        table.meet()\n", "            torch.save(table.mind.state_dict(), \"mind.pt\")\n        if number != 12:\n            table.meet()\n")))
fault("puzzle", "no-meeting", "the gamer leaves out a monitored barrier (round 15)", "skipped-collective", SKIP + " deadlock-cycle", (1,), args=("--timeout", "25", *LONG_GAME), extra="fr",
      edits=(("best {rewards.max().item():.2f}\", flush=True)\n        table.meet()\n", "best {rewards.max().item():.2f}\", flush=True)\n            if number % 15 == 0:\n                continue\n        table.meet()\n"),))
fault("puzzle", "long-program", "the gamer runs a program for longer than the timeout (round 20)", "slow-rank-stall", "stuck-outside-collective timeout-too-short", (1,), args=("--timeout", "25", *LONG_GAME),
      edits=((RUN_PLAY, RUN_PLAY.replace("\"-S\", ", "").replace("print({round_number} * 2)", "import time; time.sleep({round_number} // 20 * 80); print({round_number} * 2)")),))
hung("puzzle", "question", "the gamer waits for a program that waits for input (round 10)", "stuck-outside-collective", "slow-rank-stall", (1,), early=True, args=LONG_GAME, ready=r"\[learner\] round +1 ", extra="spy2 ps",
     edits=((RUN_PLAY, RUN_PLAY.replace("print({round_number} * 2)", "print(int(input()) * {round_number})").replace("capture_output", "stdin=os.pipe()[0], capture_output")),))
hung("puzzle", "sigstop", "SIGSTOP of the learner", "process-stopped", "stuck-outside-collective", (0,), args=LONG_GAME, act=(0, "SIGSTOP"), extra="stacks ps")
fault("puzzle", "no-spread", "the learner divides by the spread of the rewards, which may be zero: NaN weights, with which the gamer cannot draw (first rounds)", "nan-loss", "device-assert application-exception", (0,), early=True, ranks_also=((1,), (), (0, 1)), args=(*PATIENT, *LONG_GAME),
      edits=(("(reward.std(1, keepdim=True) + 1e-4)", "reward.std(1, keepdim=True)"),))

# ------------------------------------------------------------------------------------------------------------ JAX, pmap; shell loop
FOREVER = (("ORBITS_STEPS", "9000000"),)
fault("orbits", "healthy-linger", "process 0 needs 20 s for each of two checkpoints, process 1 waits", "none", loop=ORBITS, env=(("ORBITS_STEPS", "240"), ("ORBITS_LINGER", "20")), extra="warn")
fault("orbits", "no-first", "process 0 is never started", "missing-rank", "rank-env-misconfigured application-exception", (0,), early=True, loop=ORBITS.replace("0 1;", "1;"), env=(("ORBITS_JOIN", "40"),))
fault("orbits", "twice-zero", "both processes are started as process 0", "rank-env-misconfigured", "port-in-use missing-rank application-exception", (), early=True, ranks_also=EITHER, loop=ORBITS.replace("  RANK=$r", "  RANK=0"), env=(("ORBITS_JOIN", "40"),))
fault("orbits", "same-gpu", "both processes use device 0", "duplicate-gpu", "rank-env-misconfigured application-exception", (), early=True, ranks_also=EITHER, loop=ORBITS.replace("LOCAL_RANK=$r", "LOCAL_RANK=0"), env=(("ORBITS_JOIN", "40"),), extra="warn")
hung("orbits", "odd-batch", "a batch of process 0 cannot be laid out (step 5)", "application-exception", "", (0,), early=True, loop=ORBITS, env=FOREVER, ready=r'"step": 1,', extra="spy2",
     edits=(("kepler(rng, here * s[\"batch\"])", "kepler(rng, here * s[\"batch\"] - (step == 5 and me == 0))"),))
fault("orbits", "sigkill", "kill -9 of process 0, which coordinates", "process-killed", "peer-process-died", (0,), loop=ORBITS, env=FOREVER, act=(0, "SIGKILL"))
hung("orbits", "main-validates", "process 0 alone validates, which reduces (step 50)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), loop=ORBITS, env=FOREVER, extra="spy2",
     edits=(("            error = float(validate(net, *held)[0])\n            if me == 0:\n", "            if me == 0:\n                error = float(validate(net, *held)[0])\n"),))
fault("orbits", "roots", "process 1 takes the root of negative positions from step 40 on: NaN, the training goes on", "nan-loss", "", (), ranks_also=((1,),), category="corruption", loop=ORBITS, env=(("ORBITS_STEPS", "12000"), ("ORBITS_SAVE", "6000")),
      edits=(("        net, speed, loss = advance(", "        if me == 1 and step >= 40:\n            where = np.sqrt(where)\n        net, speed, loss = advance("),))

# ---------------------------------------------------------------------------------------------- GAN under DDP, multiprocessing.spawn
LONG_GAN = ("--steps", "900000")
AFTER_EYES = "        eyes.step()\n"
fault("glyphs", "healthy-gallery", "rank 0 draws each sheet for 20 s, rank 1 waits in the barrier", "none", args=("--steps", "250"),
      edits=(("    return \"\\n\".join(\"\".join(", "    time.sleep(20)\n    return \"\\n\".join(\"\".join("),))
fault("glyphs", "fonts", "process 1 does not find its fonts, before the group is made", "application-exception", "storage-failure", (1,), early=True, args=("--timeout", "40"),
      edits=(("    cuda = torch.cuda.is_available()\n    if cuda:", "    if rank == 1:\n        with open(\"fonts/slanted.txt\") as file:\n            random.seed(file.read())\n    cuda = torch.cuda.is_available()\n    if cuda:"),))
fault("glyphs", "flourish", "a layer is not used in each step and DDP is not told so (step 2)", "application-exception", "", (), early=True, ranks_also=EITHER, args=("--timeout", "40"),
      edits=(("device_ids=only, find_unused_parameters=True", "device_ids=only"),))
fault("glyphs", "port-taken", "something else has the port", "port-in-use", "application-exception missing-rank launcher-failure", (), early=True, ranks_also=((0,),), port_taken=True, args=("--timeout", "40"))
fault("glyphs", "good-pens", "rank 1 does not train its scribe in some steps (step 30)", "skipped-collective", SKIP + " silent-corruption", (1,), args=(*WAIT, *LONG_GAN), extra="fr",
      edits=(("        drawn.backward()\n        pens.step()\n", "        if rank == 0 or step % 30:\n            drawn.backward()\n            pens.step()\n"),))
hung("glyphs", "no-curve", "the process that writes the curve has failed; rank 0 waits for room in the queue", "stuck-outside-collective", "application-exception slow-rank-stall", (0,), args=(*LONG_GAN, "--tell", "5"), ready="step 10 eyes", extra="spy2",
     edits=(("maxsize=50", "maxsize=4"), ("(news, \"curve.csv\")", "(news, \"curves/curve.csv\")")))
fault("glyphs", "killed", "rank 1 is killed by signal 9 (step 60)", "process-killed", "peer-process-died", (1,), args=(*WAIT, *LONG_GAN),
      edits=((AFTER_EYES, "        if rank == 1 and step == 60:\n            os.kill(os.getpid(), signal.SIGKILL)\n" + AFTER_EYES),))
fault("glyphs", "enough", "rank 1 ends with 0 in step 50", "rank-exited-early", "skipped-collective uneven-inputs", (1,), args=(*WAIT, *LONG_GAN),
      edits=((AFTER_EYES, AFTER_EYES + "        if rank == 1 and step == 50:\n            print(\"good enough\", flush=True)\n            os._exit(0)\n"),))

FAULTS = F
