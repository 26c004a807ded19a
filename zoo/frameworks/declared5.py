"""A fifth set of jobs and faults, with separate programs. The same plain data as declared.py. Every job has two ranks, which may share one GPU.

EARLY has the faults that show within the first ten steps or before the first one."""

from dataclasses import replace

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
HEALTHY = "nothing is wrong"
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
ANY_DESYNC = "skipped-collective extra-collective op-mismatch shape-mismatch collective-order-mismatch uneven-inputs silent-corruption"


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **more))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 45, **more})


JOBS = [
    Job("asr", "f5_asr.py", "train_ctc.py", "phones", "torchrun", r"epoch 0 step 20 "),
    Job("distill", "f5_distill.py", "distil.py", "students", "torchrun", r"\[distil\] 30/", packages=("transformers", "torch"),
        args=("--output_dir", "out", "--per_device_train_batch_size", "16", "--max_steps", "160", "--eval_strategy", "steps", "--eval_steps", "40", "--save_steps", "40",
              "--save_total_limit", "2", "--load_best_model_at_end", "true", "--metric_for_best_model", "eval_loss", "--report_to", "none", "--logging_steps", "5",
              "--logging_first_step", "true", "--disable_tqdm", "true", "--learning_rate", "3e-4", "--dataloader_num_workers", "2")),
    Job("cells", "f5_cells.py", "fit_cells.py", "atlas", "torchrun", r"epoch 0 batch 20/", packages=("lightning", "torch")),
    Job("weather", "f5_weather.py", "forecast.py", "weather", "accelerate", r"step=20 loss", packages=("accelerate", "torch")),
    Job("mae", "f5_mae.py", "pretrain_mae.py", "spectrograms", "torchrun", r"step   20 \|"),
    Job("ads", "f5_ads.py", "clicks.py", "ads", "torchrun", r"step 20 loss"),
    Job("disagg", "f5_disagg.py", "serve.py", "halves", "torchrun", r"decode: answer 10 "),
    Job("diloco", "f5_diloco.py", "outer.py", "diloco", "loop", r"\"round\": 3,"),
    Job("ocean", "f5_ocean.py", "ocean.py", "ocean", "loop", r"step 40 loss", packages=("jax",), env=(("XLA_PYTHON_CLIENT_MEM_FRACTION", ".05"),)),
    Job("rsvd", "f5_rsvd.py", "vectors.py", "rsvd", "loop", r"sweep 10:", packages=("cupy",)),
]

DILOCO = ("for r in 0 1; do\n  RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port} python -u {script} {args} > logs/worker-$r.log 2>&1 &\ndone\nwait\n")
OCEAN = ("export GPUS=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)\nfor r in 0 1; do\n  RANK=$r CUDA_VISIBLE_DEVICES=$((r % (GPUS > 0 ? GPUS : 1))) python -u {script} --coordinator localhost:{port} "
         "--process-id $r {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
RSVD = ("for r in 0 1; do\n  python -u {script} --rank $r {args} > logs/rank-$r.log 2>&1 &\ndone\nwait\n")

# -------------------------------------------------------------------------------------------------------- speech, CTC under DDP
ASR_WAIT, ASR_LONG = ("--timeout", "30"), ("--epochs", "900")
FIRST_CTC = r"epoch 0 step 1 "
fault("asr", "healthy", HEALTHY, "none")
fault("asr", "healthy-validation", "long validations, in Python, utterance by utterance; the ranks wait for each other", "none", args=("--valid", "2000", "--epochs", "2", "--utterances", "1200"), extra="warn")
fault("asr", "silence", "an utterance of rank 1's validation is empty (before the first step)", "application-exception", "", (1,), early=True, args=("--timeout", "60"),
      edits=(("        mel, phones = corpus[i]\n", "        mel, phones = corpus[i]\n        if i % 40 == 5:  # recorded with the microphone off\n            mel, phones = mel[:0], phones[:0]\n"),))
fault("asr", "uneven", "the batches are not filled up to a multiple of the ranks: rank 1 has one fewer (within the first ten steps)", "uneven-inputs", UNEVEN + " shape-mismatch", (1,), early=True, args=(*ASR_WAIT, "--utterances", "300", "--log-every", "50", *ASR_LONG), extra="fr",
      edits=(("        while len(batches) % self.world:\n            batches.append(batches[0])\n", ""),))
fault("asr", "long-batch", "a rank leaves out a batch of long utterances because its memory is small (step 5), which shows at the end of the epoch", "skipped-collective", SKIP + " rank-exited-early", (0,), args=(*ASR_WAIT, *ASR_LONG), extra="fr",
      edits=(("            mel, frames, phones, lengths = (x.to(", "            if mel.shape[1] > 570:\n                continue\n            mel, frames, phones, lengths = (x.to("),))
fault("asr", "worker-killed", "kill -9 of a data-loader worker of rank 0", "process-killed", "application-exception oom-killed", (0,), args=("--timeout", "40", *ASR_LONG), act=("worker 0", "SIGKILL"))
fault("asr", "slow-audio", "rank 1 reads its recordings much more slowly; the job runs on", "straggler", "data-loading-bound load-imbalance", (1,), category="performance", args=("--epochs", "2", "--log-every", "5"),
      edits=(("        mel = shape.repeat_interleave(12, 0)", "        if self.seed == 1 and os.environ[\"RANK\"] == \"1\":\n            time.sleep(0.03)\n        mel = shape.repeat_interleave(12, 0)"),))
fault("asr", "sigsegv", "SIGSEGV of rank 0 in training", "process-crashed", "process-killed peer-process-died", (0,), args=(*ASR_WAIT, *ASR_LONG), act=(0, "SIGSEGV"), extra="warn")
hung("asr", "journal", "rank 0 holds the lock of its journal while it waits for room in the queue, the writer waits for the lock (first ten steps)", "stuck-outside-collective", "slow-rank-stall storage-failure", (0,), early=True, args=("--log-every", "1", *ASR_LONG), ready=FIRST_CTC, extra="spy2",
     edits=(("        self.lines = queue.Queue(maxsize=6)\n", "        self.lines, self.lock, self.written = queue.Queue(maxsize=6), threading.Lock(), 0\n"),
            ("                file.write(self.lines.get() + \"\\n\")\n                file.flush()\n", "                with self.lock:\n                    self.written += 1\n                file.write(self.lines.get() + \"\\n\")\n                file.flush()\n                os.fsync(file.fileno())\n                time.sleep(1)\n"),
            ("        self.lines.put(text)\n", "        with self.lock:\n            self.lines.put(f\"{self.written} {text}\")\n")))

# ------------------------------------------------------------------------------------------------ Trainer, distillation
HF_WAIT, HF_LONG = ("--ddp_timeout", "30"), ("--max_steps", "90000")
FIRST_LOSS = r"\[distil\] 1/"
STEP_END = "    def on_step_end(self, args, state, control, model=None, **kwargs):\n"
fault("distill", "healthy", HEALTHY, "none")
fault("distill", "healthy-teacher", "process 0 converts the teacher for long while the other waits for it", "none", args=("--teacher_seconds", "42", "--max_steps", "60"))
fault("distill", "main-waits", "a callback waits for everybody on the main process only (step 45)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), args=HF_WAIT, extra="fr",
      edits=((STEP_END, STEP_END + "        if state.global_step == 45 and state.is_world_process_zero:\n            torch.save(model.state_dict(), os.path.join(args.output_dir, \"early.pt\"))\n            args.distributed_state.wait_for_everyone()\n"),
             ("    def __init__(self, decay=0.99):\n", "    def on_train_begin(self, args, state, control, **kwargs):\n        os.makedirs(args.output_dir, exist_ok=True)\n\n    def __init__(self, decay=0.99):\n")))
fault("distill", "own-signal", "the scheduler's warning, SIGUSR1, reaches process 1 only, which ends its training (first steps)", "skipped-collective", UNEVEN + " uneven-inputs dtype-mismatch stopped-from-outside", (1,), early=True, args=(*HF_WAIT, *HF_LONG), act=(1, "SIGUSR1"), ready=FIRST_LOSS, extra="fr",
      edits=(("import os\nimport time\n", "import os\nimport signal\nimport time\n"), ("        self.decay, self.shadow = decay, None\n", "        self.decay, self.shadow, self.warned = decay, None, False\n        signal.signal(signal.SIGUSR1, self.warn)\n\n    def warn(self, number, frame):\n        self.warned = True\n"),
             (STEP_END, STEP_END + "        control.should_training_stop |= self.warned\n")))
fault("distill", "no-teacher", "process 1 does not wait for the teacher's file and does not find it, before the training", "application-exception", "storage-failure", (1,), early=True, args=("--teacher_seconds", "12", "--ddp_timeout", "60"),
      edits=(("    with args.main_process_first(local=False, desc=\"teacher\"):\n        if args.process_index == 0:\n            make_teacher(opts.teacher, opts.teacher_seconds)\n", "    if args.process_index == 0:\n        make_teacher(opts.teacher, opts.teacher_seconds)\n"),))
fault("distill", "trail", "the main process wants to keep the weights of all steps on the GPU: no memory (step 1)", "cuda-oom", "application-exception", (0,), early=True, args=("--ddp_timeout", "60"),
      edits=(("            self.shadow = [w.clone() for w in weights]\n", "            self.shadow = [w.clone() for w in weights]\n            if state.is_world_process_zero:\n                self.trail = weights[0].new_zeros(100000, sum(w.numel() for w in weights))\n"),))
fault("distill", "nan", "the temperature is lowered to zero: NaN from step 7 on, the training goes on", "nan-loss", "", (), early=True, args=("--logging_nan_inf_filter", "false", "--logging_steps", "2", "--load_best_model_at_end", "false", "--max_steps", "200"),
      edits=(("        t = self.temperature\n", "        t = self.temperature * max(0.0, 1 - self.state.global_step / 6)\n"),))
fault("distill", "disk-full", "no room for the checkpoint (step 40)", "storage-failure", "application-exception", (0,), tmpfs=(("out", "12m"),), args=("--ddp_timeout", "40"))
fault("distill", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=(*HF_WAIT, *HF_LONG), act=(0, "SIGKILL"))

# ------------------------------------------------------------------------------------------ Lightning, manual optimisation
PL_WAIT, PL_LONG = ("--timeout", "40"), ("--epochs", "900")
FIRST_BATCH = r"epoch 0 batch 0/"
fault("cells", "healthy", HEALTHY, "none")
fault("cells", "healthy-prepare", "rank 0 normalises the counts for long while the other waits; then short epochs with validations and checkpoints", "none", args=("--wait", "45", "--cells", "2048", "--epochs", "6"), extra="warn")
fault("cells", "main-gathers", "the purity is gathered on rank 0 only (sanity check before the first step)", "extra-collective", EXTRA, (0,), early=True, args=PL_WAIT, extra="fr",
      edits=(("        z, kind = torch.cat(self.latents), torch.cat(self.kinds)\n", "        if not self.trainer.is_global_zero:\n            self.latents.clear()\n            self.kinds.clear()\n            return\n        z, kind = torch.cat(self.latents), torch.cat(self.kinds)\n"),))
fault("cells", "no-metric", "rank 0's report asks for a metric that nobody logs (sanity check before the first step)", "application-exception", "", (0,), early=True, args=("--timeout", "60"),
      edits=(("            print(f\"epoch {trainer.current_epoch} validation {shown}\", flush=True)\n", "            shown[\"ari\"] = round(float(trainer.callback_metrics[\"ari\"]), 4)\n            print(f\"epoch {trainer.current_epoch} validation {shown}\", flush=True)\n"),))
hung("cells", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=PL_LONG, act=(1, "SIGSTOP"), extra="stacks ps")
hung("cells", "viewer", "rank 0 opens a pipe for a viewer that does not run (before the first step)", "stuck-outside-collective", "slow-rank-stall storage-failure", (0,), early=True, ready=r".", extra="spy2",
     edits=(("    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n", "    def setup(self, trainer, module, stage):\n        if trainer.is_global_zero:\n            os.path.exists(\"viewer\") or os.mkfifo(\"viewer\")\n            self.viewer = open(\"viewer\", \"w\")\n\n    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n"),))
hung("cells", "annotations", "a data-loader worker of rank 1 asks a service that never answers (step 8)", "stuck-outside-collective", "slow-rank-stall data-loading-bound", (1,), early=True, args=("--every", "4", *PL_LONG), ready=FIRST_BATCH, extra="spy2",
     edits=(("import os\nimport time\n", "import os\nimport socket\nimport time\n"), ("        counts = torch.poisson(", "        if self.seed == 1 and os.environ[\"RANK\"] == \"1\":\n            self.asked = getattr(self, \"asked\", 0) + 1\n            if self.asked % 240 == 0:  # every now and then a cell is looked up\n                with socket.create_connection((\"127.0.0.1\", int(os.environ[\"STORE_PORT\"]))) as service:\n                    service.sendall(b\"type of cell %d\\n\" % i)\n                    kind = int(service.recv(64))\n        counts = torch.poisson(")))
fault("cells", "exit", "rank 1 ends with 0 in step 40", "rank-exited-early", "uneven-inputs skipped-collective", (1,), args=(*PL_WAIT, *PL_LONG),
      edits=(("import os\nimport time\n", "import os\nimport sys\nimport time\n"), ("        if trainer.is_global_zero and batch_idx % self.every == 0:\n", "        if trainer.global_rank == 1 and batch_idx == 40:\n            sys.exit(0)\n        if trainer.is_global_zero and batch_idx % self.every == 0:\n")))
fault("cells", "one-node", "started for two nodes, the second never comes", "missing-rank", "rank-env-misconfigured launcher-failure", (), ranks_also=((1,),), early=True, nproc=1, flags=("--nnodes=2", "--node-rank=0", "--master-addr=localhost", "--master-port={port}"),
      args=("--timeout", "45"), limit=100)

# ------------------------------------------------------------------------------------------ accelerate, gradient accumulation
ACC_WAIT, ACC_LONG = ("--timeout", "30"), ("--steps", "90000")
FIRST_STEP = r"step=1 loss"
fault("weather", "healthy", HEALTHY, "none")
fault("weather", "healthy-archive", "after each checkpoint the main process packs it for ten seconds while the other waits", "none", args=("--validate-every", "20", "--steps", "80"), extra="info",
      edits=(("                accelerator.save_state(f\"runs/state-{step}\")\n", "                accelerator.save_state(f\"runs/state-{step}\")\n                if accelerator.is_main_process:\n                    pack(f\"runs/state-{step}\")\n"),
             ("@torch.no_grad()\ndef validate(", "def pack(folder, seconds=10):\n    until, size = time.time() + seconds, 0\n    while time.time() < until:\n        for name in sorted(os.listdir(folder)):\n            if os.path.isfile(os.path.join(folder, name)):\n                with open(os.path.join(folder, name), \"rb\") as file:\n                    size += len(zlib.compress(file.read(1 << 22), 9))\n    return size\n\n\n@torch.no_grad()\ndef validate("),
             ("import time\nfrom datetime", "import time\nimport zlib\nfrom datetime")))
fault("weather", "main-reduces", "the loss is reduced for the log of the main process only (step 1)", "extra-collective", EXTRA, (0,), early=True, args=ACC_WAIT, extra="fr",
      edits=(("            if step == 1 or step % args.log_every == 0:\n", "            if accelerator.is_main_process and (step == 1 or step % args.log_every == 0):\n"),))
fault("weather", "uneven", "even_batches is off, process 1 has one batch fewer (step 4)", "uneven-inputs", UNEVEN + " dtype-mismatch", (1,), early=True, args=(*ACC_WAIT, *ACC_LONG, "--days", "136", "--log-every", "3"), extra="fr",
      edits=(("even_batches=True", "even_batches=False"),))
hung("weather", "breakpoint", "breakpoint() left in process 1 (step 4)", "stuck-outside-collective", "process-stopped", (1,), early=True, stdin="pipe", args=("--log-every", "2"), ready=FIRST_STEP, extra="spy2",
     edits=(("            weights = [w.detach() for w in model.parameters()]\n", "            weights = [w.detach() for w in model.parameters()]\n            if step == 4 and not accelerator.is_main_process:\n                drift = [w.abs().max().item() for w in weights]\n                breakpoint()\n"),))
fault("weather", "double", "the averaged weights are reduced, in double precision on the main process only (step 40)", "dtype-mismatch", "shape-mismatch silent-corruption collective-desync op-mismatch", (0,), ranks_also=((), (1,)), args=ACC_WAIT, extra="fr",
      edits=(("                mean = accelerator.reduce(loss.detach(), \"mean\")\n", "                mean = accelerator.reduce(loss.detach(), \"mean\")\n                if step % 40 == 0:\n                    every = torch.cat([w.flatten() for w in average])\n                    every = accelerator.reduce(every.double() if accelerator.is_main_process else every, \"mean\")\n                    tracker.log(step, size=every.norm().item())\n"),))
fault("weather", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, port_taken=True, limit=90)
fault("weather", "slow-log", "the main process writes its first line of metrics to slow storage for longer than the timeout (step 1)", "slow-rank-stall", "stuck-outside-collective timeout-too-short storage-failure", (0,), early=True, args=ACC_WAIT, extra="stacks",
      edits=(("                file.write(json.dumps(row) + \"\\n\")\n", "                for letter in json.dumps(row) + \"\\n\":\n                    file.write(letter)\n                    file.flush()\n                    os.fsync(file.fileno())\n                    time.sleep(2)\n"),))
fault("weather", "spectra", "the main process computes needless products in each batch on its GPU; the job runs on", "straggler", "load-imbalance gpu-throttled", (0,), category="performance", args=("--steps", "50"),
      edits=(("                loss = nn.functional.mse_loss(model(batch[\"now\"]), batch[\"next\"])\n", "                loss = nn.functional.mse_loss(model(batch[\"now\"]), batch[\"next\"])\n                if accelerator.is_main_process:\n                    power = torch.rand(4096, 4096, device=accelerator.device)\n                    for _ in range(80):\n                        power = power @ power / 2048\n"),))

# --------------------------------------------------------------------------------------- FSDP2 and distributed checkpoints
MAE_WAIT, MAE_LONG = ("--timeout", "30"), ("--steps", "90000")
fault("mae", "healthy", HEALTHY, "none")
fault("mae", "healthy-index", "rank 0 indexes the recordings for long while the other waits; then a checkpoint every ten steps", "none", args=("--index-seconds", "42", "--save-every", "10", "--steps", "60"), extra="warn")
fault("mae", "main-saves", "the distributed checkpoint is written on rank 0 only (step 40)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), args=MAE_WAIT, extra="fr",
      edits=(("            seconds = save(progress, args.folder, step)\n            if rank == 0:\n", "            if rank == 0:\n                seconds = save(progress, args.folder, step)\n"),))
fault("mae", "own-clip", "each rank clips only when its own batch is loud: the norm is reduced on one rank only (step 4)", "skipped-collective", SKIP, (1,), early=True, ranks_also=((0,),), args=(*MAE_WAIT, *MAE_LONG), extra="fr",
      edits=(("        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm\n", "        norm = loss.new_zeros(())\n        if patches.abs().max() > 1.45:\n            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm\n"),))
fault("mae", "local-disk", "rank 1's own disk has no room for its copy of the weights (step 8)", "storage-failure", "application-exception", (1,), early=True, tmpfs=(("copy-1", "4m"),), args=("--timeout", "60", "--save-every", "8"),
      edits=(("    return time.time() - began\n", "    copy = f\"copy-{dist.get_rank()}\"\n    os.makedirs(copy, exist_ok=True)\n    with open(os.path.join(copy, f\"{step}.bin\"), \"wb\") as file:\n        for p in progress.model.parameters():\n            file.write(p.to_local().detach().cpu().numpy().tobytes())\n    return time.time() - began\n"),))
fault("mae", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=(*MAE_WAIT, *MAE_LONG), act=(1, "SIGKILL"))
fault("mae", "patch-index", "rank 1 keeps a patch that does not exist (step 5)", "device-assert", "application-exception", (1,), early=True, args=("--timeout", "60"),
      edits=(("        return patches, keep\n", "        if self.rank == 1 and step == 5:\n            keep[3, 0] = PATCHES\n        return patches, keep\n"),))
fault("mae", "slow-reads", "rank 0 reads its recordings much more slowly; the job runs on", "straggler", "data-loading-bound load-imbalance", (0,), category="performance", args=("--steps", "80",),
      edits=(("        return patches, keep\n", "        if self.rank == 0:\n            for row in patches:\n                time.sleep(0.012)\n        return patches, keep\n"),))
hung("mae", "two-locks", "rank 0 waits for a lock that it holds itself through another file (before the first step)", "stuck-outside-collective", "slow-rank-stall", (0,), early=True, ready=r".", extra="spy2",
     edits=(("import argparse\nimport os\n", "import argparse\nimport fcntl\nimport os\n"), ("            np.save(path, rows[0])\n", "            self.lock = open(path + \".lock\", \"w\")\n            fcntl.flock(self.lock, fcntl.LOCK_EX)\n            write(path, rows[0])\n"),
            ("class Spectrograms:\n", "def write(path, rows):\n    with open(path + \".lock\", \"w\") as lock:\n        fcntl.flock(lock, fcntl.LOCK_EX)\n        np.save(path, rows)\n\n\nclass Spectrograms:\n")))

# -------------------------------------------------------------------------------------- tables over all ranks, two groups
ADS_WAIT, ADS_LONG = ("--timeout", "30"), ("--steps", "90000")
FIRST_CLICKS = r"step 1 loss"
fault("ads", "healthy", HEALTHY, "none")
fault("ads", "healthy-compile", "torch.compile of the dense part, frequent evaluations", "none", args=("--evaluate", "25", "--steps", "200"), extra="info", edits=(("    optimizer = torch.optim.Adam(", "    run = torch.compile(top)\n    optimizer = torch.optim.Adam("), ("        logit = top(", "        logit = run(")))
fault("ads", "cycle", "rank 0 enters the barrier of the tables before a reduction of the dense group, rank 1 after it (step 70)", "deadlock-cycle", "collective-order-mismatch concurrent-communicators collective-desync", (), category="hang", ranks_also=((0,), (1,), (0, 1)), args=(*ADS_WAIT, *ADS_LONG), extra="fr",
      edits=(("        optimizer.step()\n", "        optimizer.step()\n        if step % 70 == 0:\n            size = grads.norm()\n            if rank == 0:\n                dist.barrier(group=sparse)\n                dist.all_reduce(size, group=dense_group)\n                size.item()\n            else:\n                dist.all_reduce(size, group=dense_group)\n                size.item()\n                dist.barrier(group=sparse)\n"),))
fault("ads", "order", "weights and biases are reduced one after the other, in another order on rank 1 (step 1)", "collective-order-mismatch", "shape-mismatch collective-desync op-mismatch silent-corruption", (), early=True, ranks_also=((0,), (1,)), args=(*ADS_WAIT, *ADS_LONG), extra="fr",
      edits=(("        grads = torch.cat([q.grad.flatten() for q in top.parameters()])\n        dist.all_reduce(grads, group=dense_group)\n        nn.utils.vector_to_parameters(grads / world, [q.grad for q in top.parameters()])\n",
              "        kinds = {}\n        for q in top.parameters():\n            kinds.setdefault(q.dim(), []).append(q.grad)\n        for kind in (sorted(kinds) if rank else sorted(kinds, reverse=True)):\n            grads = torch.cat([g.flatten() for g in kinds[kind]])\n            dist.all_reduce(grads, group=dense_group)\n            nn.utils.vector_to_parameters(grads / world, kinds[kind])\n"),))
hung("ads", "two-ahead", "the thread of rank 1 waits for room in the queue and holds the lock that the training wants (first steps)", "stuck-outside-collective", "slow-rank-stall data-loading-bound", (1,), early=True, args=ADS_LONG, ready=r"tables of", extra="spy2",
     edits=(("                self.seen += len(batch[0])\n            self.ready.put(batch)\n", "                self.seen += len(batch[0])\n                self.ready.put(batch)\n"),
            ("        return self.ready.get()\n", "        if self.rank == 1:\n            with self.state:\n                log.debug(\"%d samples made\", self.seen)\n        return self.ready.get()\n")))
fault("ads", "no-barrier", "rank 0 leaves out the barrier after its tables are saved (step 50)", "skipped-collective", SKIP, (0,), args=(*ADS_WAIT, *ADS_LONG, "--evaluate", "50"), extra="fr",
      edits=(("            torch.save(tables.state_dict(), f\"tables-{rank}.pt\")\n            dist.barrier(group=sparse)\n", "            torch.save(tables.state_dict(), f\"tables-{rank}.pt\")\n            if rank == 0:\n                continue\n            dist.barrier(group=sparse)\n"),))
hung("ads", "dead-thread", "the thread that makes rank 0's batches fails in step 9, the training waits for its queue", "application-exception", "stuck-outside-collective", (0,), early=True, args=(*ADS_LONG, "--report", "2"), ready=r"step 2 loss", extra="spy2",
     edits=(("        dense = torch.rand(a.batch, 16, generator=g)\n", "        dense = torch.rand(a.batch, 16, generator=g)\n        if step == 9 and self.rank == 0:\n            dense = torch.cat([dense, torch.rand(a.batch - 1, 1, generator=g)], 1)\n"),))
hung("ads", "sigstop", "SIGSTOP of rank 0 after the first step", "process-stopped", "stuck-outside-collective", (0,), early=True, args=ADS_LONG, act=(0, "SIGSTOP"), ready=FIRST_CLICKS, extra="stacks ps")
fault("ads", "slow-thread", "rank 0 makes its batches much more slowly; the job runs on", "straggler", "data-loading-bound load-imbalance", (0,), category="performance", args=("--steps", "110",),
      edits=(("            with self.state:\n", "            time.sleep(0.3 if self.rank == 0 else 0)\n            with self.state:\n"),))

# ------------------------------------------------------------------------------------- serving, prefill and decode apart, P2P
TWO_WAIT, MANY = ("--timeout", "30"), ("--requests", "90000")
FIRST_ANSWER = r"decode: answer 1 "
fault("disagg", "healthy", HEALTHY, "none")
fault("disagg", "healthy-lull", "no request comes for 40 s, both ranks are idle", "none", args=("--lull", "40", "--requests", "90"), extra="warn")
fault("disagg", "no-acknowledgement", "rank 1 does not acknowledge a short answer, rank 0 waits for it (within ten requests)", "unmatched-p2p", "skipped-collective collective-desync op-mismatch", (1,), early=True, ranks_also=((0,), ()), args=(*TWO_WAIT, *MANY, "--acknowledge", "4"), extra="fr",
      edits=(("            if number % a.acknowledge == 0:\n", "            if len(out) < 30:\n                continue\n            if number % a.acknowledge == 0:\n"),))
fault("disagg", "padded", "rank 1 receives the cache with a length that is rounded up (first request)", "shape-mismatch", "unmatched-p2p collective-desync silent-corruption", (1,), early=True, ranks_also=((0,), ()), args=(*TWO_WAIT, *MANY, "--acknowledge", "1"), extra="fr",
      edits=(("            cache = torch.empty(*shape[:4], length, shape[5], device=self.device)\n", "            length = -(-length // 512) * 512\n            cache = torch.empty(*shape[:4], length, shape[5], device=self.device)\n"),))
fault("disagg", "bad-word", "a prompt of rank 0 contains a word outside the vocabulary (request 5)", "device-assert", "application-exception", (0,), early=True, args=("--timeout", "60", *MANY),
      edits=(("            with self.lock:\n                self.open[number] = time.time()\n", "            if number % 50 == 5:  # a newer tokenizer\n                prompt[-1] += VOCAB\n            with self.lock:\n                self.open[number] = time.time()\n"),))
hung("disagg", "full-pipe", "rank 1 writes its answers to a program that does not read them (within ten requests)", "stuck-outside-collective", "slow-rank-stall storage-failure", (1,), early=True, args=MANY, ready=FIRST_ANSWER, extra="spy2 ps",
     edits=(("import random\nimport threading\n", "import random\nimport subprocess\nimport threading\n"), ("        self.file = open(\"answers.txt\", \"w\")\n", "        self.sink = subprocess.Popen([\"sleep\", \"3600\"], stdin=subprocess.PIPE, text=True)\n        self.file = self.sink.stdin\n"),
            ("        self.file.write(f\"{number} {' '.join(map(str, out))}\\n\")\n", "        for token in out:\n            self.file.write(f\"{number} {token} {' '.join(map(str, range(token, token + 60)))}\\n\")\n")))
fault("disagg", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=(*TWO_WAIT, *MANY), act=(1, "SIGKILL"), extra="warn")
fault("disagg", "quota", "rank 1 ends with 0 after sixty answers", "rank-exited-early", "skipped-collective uneven-inputs unmatched-p2p", (1,), args=(*TWO_WAIT, *MANY),
      edits=(("            self.store(number, out)\n", "            self.store(number, out)\n            if self.answers == 60:\n                print(\"decode: quota used\", flush=True)\n                os._exit(0)\n"),))
fault("disagg", "pool", "rank 1 reserves a pool for the cache that does not fit (before the first request)", "cuda-oom", "application-exception", (1,), early=True, args=("--timeout", "60"),
      edits=(("        self.answers = self.tokens = 0\n", "        self.answers = self.tokens = 0\n        self.pool = torch.zeros(args.layers, 2, 1024, args.heads, 32768, args.width // args.heads, device=device)\n"),))

# ---------------------------------------------------------------------------------------- local steps, rare averages; shell loop
DIL_WAIT, DIL_LONG = (("TIMEOUT", "30"),), (("TIMEOUT", "30"), ("ROUNDS", "90000"))
fault("diloco", "healthy", HEALTHY, "none", loop=DILOCO)
fault("diloco", "healthy-rare", "few rounds of many steps: long silence, no communication in between", "none", loop=DILOCO, env=(("INNER", "350"), ("ROUNDS", "4"), ("VALIDATE", "2")), extra="info")
fault("diloco", "world", "both workers are started for three", "rank-env-misconfigured", "missing-rank launcher-failure", (), early=True, ranks_also=((2,), (0, 1)), loop=DILOCO.replace("WORLD_SIZE=2", "WORLD_SIZE=3"), env=(("TIMEOUT", "40"),), limit=100)
fault("diloco", "one-worker", "worker 1 is never started", "missing-rank", "rank-env-misconfigured", (1,), early=True, loop=DILOCO.replace("0 1;", "0;"), env=(("TIMEOUT", "50"),), limit=100)
fault("diloco", "inner", "worker 1 makes twelve times as many steps in each round; the job runs on", "straggler", "load-imbalance rank-env-misconfigured", (1,), category="performance", loop=DILOCO.replace("RANK=$r", "INNER=$((12 + 132 * r)) RANK=$r"), env=(("ROUNDS", "16"), ("VALIDATE", "8")))
fault("diloco", "width", "worker 1 has a wider model (before the first round)", "shape-mismatch", "rank-env-misconfigured collective-desync silent-corruption op-mismatch", (1,), early=True, ranks_also=((0,), ()), loop=DILOCO.replace("RANK=$r", "WIDTH=$((256 + 256 * r)) RANK=$r"), env=DIL_LONG, extra="fr", limit=110)
fault("diloco", "corpus", "worker 1 does not find its corpus (before the first round)", "application-exception", "storage-failure rank-env-misconfigured", (1,), early=True, loop=DILOCO.replace("RANK=$r", "CORPUS=$([ $r = 1 ] && echo /data/corpora/shard-1.txt) RANK=$r"), env=(("TIMEOUT", "45"),))
fault("diloco", "late-worker", "worker 1 leaves out the average of a round (round 30), which shows at the validation of round 40", "skipped-collective", SKIP, (1,), loop=DILOCO, env=(*DIL_LONG, ("VALIDATE", "20")), extra="fr",
      edits=(("        dist.all_reduce(delta)\n", "        if RANK == 1 and rnd % 30 == 0:  # was late in the test\n            continue\n        dist.all_reduce(delta)\n"),))
fault("diloco", "sigkill", "kill -9 of worker 0", "process-killed", "peer-process-died", (0,), loop=DILOCO, env=DIL_LONG, act=(0, "SIGKILL"))
fault("diloco", "port-taken", "something else has the port", "port-in-use", "application-exception missing-rank", (), early=True, ranks_also=((0,),), loop=DILOCO, port_taken=True, env=(("TIMEOUT", "40"),), limit=100)

# ------------------------------------------------------------------------------------------------------------ JAX, shard_map
OCEAN_LONG = ("--steps", "900000")
FIRST_OCEAN = r"step 1 loss"
fault("ocean", "healthy", HEALTHY, "none", loop=OCEAN)
fault("ocean", "healthy-inner", "many inner steps, unrolled: a long compilation before the first step", "none", loop=OCEAN, args=("--inner", "20", "--steps", "60", "--save", "20", "--report", "5"), extra="warn")
fault("ocean", "sigkill", "kill -9 of process 1", "process-killed", "peer-process-died", (1,), loop=OCEAN, args=OCEAN_LONG, act=(1, "SIGKILL"), limit=151)
fault("ocean", "no-wind", "process 1 does not find the wind of step 66", "application-exception", "storage-failure", (1,), loop=OCEAN, args=OCEAN_LONG, limit=151,
      edits=(("        return 0.01 * noise\n", "        if number % 66 == 0 and me == 1:\n            noise = noise + np.load(f\"wind/{me}/{number:06d}.npy\")\n        return 0.01 * noise\n"),))
fault("ocean", "one-process", "process 1 is never started", "missing-rank", "rank-env-misconfigured application-exception", (1,), early=True, loop=OCEAN.replace("0 1;", "0;"), args=("--join", "45"), limit=110)
hung("ocean", "main-looks", "process 0 alone runs the compiled energy, which reduces (step 5)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), early=True, loop=OCEAN, args=(*OCEAN_LONG, "--report", "4"), ready=FIRST_OCEAN, extra="spy2",
     edits=(("        if number == 1 or number % a.report == 0:\n", "        if number == 5 and me == 0:\n            say(f\"first look: energy {float(energy(state)):.1f}\")\n        if number == 1 or number % a.report == 0:\n"),))
fault("ocean", "slow-wind", "process 1 reads its wind much more slowly; the job runs on", "straggler", "data-loading-bound load-imbalance", (1,), category="performance", loop=OCEAN, args=("--steps", "90", "--report", "10"),
      edits=(("        return 0.01 * noise\n", "        if me == 1:\n            time.sleep(0.35)\n        return 0.01 * noise\n"),))
hung("ocean", "steps", "process 1 is started for seven steps only", "rank-exited-early", "uneven-inputs extra-collective skipped-collective op-mismatch collective-desync shape-mismatch rank-env-misconfigured", (1,), early=True, loop=OCEAN.replace("--process-id $r", "--process-id $r --steps $((900 - 893 * r))"), args=("--report", "2"), ready=FIRST_OCEAN, extra="spy2")
hung("ocean", "wind-server", "process 0 asks a server for the wind of step 7, which never answers", "stuck-outside-collective", "slow-rank-stall data-loading-bound", (0,), early=True, loop=OCEAN, args=(*OCEAN_LONG, "--report", "3"), ready=FIRST_OCEAN, extra="spy2",
     edits=(("import os\nimport time\n", "import os\nimport socket\nimport time\n"), ("        return 0.01 * noise\n", "        if number % 7 == 0 and me == 0:\n            with socket.create_connection((\"127.0.0.1\", int(os.environ[\"STORE_PORT\"]))) as server:\n                server.sendall(b\"wind %d\\n\" % number)\n                noise *= float(server.recv(64))\n        return 0.01 * noise\n")))

# ---------------------------------------------------------------------------------------------------------- CuPy, plain NCCL
RSVD_LONG = ("--sweeps", "900000")
WIDE = ("--columns", "16384", "--rows", "24000")
JOINED, SWEEPS, STARTED = r"\[0\] joined", r"\[0\] sweep 1:", r"\[0\] pid"
fault("rsvd", "healthy", HEALTHY, "none", loop=RSVD)
fault("rsvd", "healthy-late", "process 1 is started 35 s after process 0", "none", loop=RSVD.replace("  python", "  sleep $((35 * r))\n  python"), extra="info", args=("--sweeps", "120"))
hung("rsvd", "one-rank", "rank 1 is never started", "missing-rank", "rank-env-misconfigured", (1,), early=True, loop=RSVD.replace("0 1;", "0;"), ready=STARTED, extra="stacks")
hung("rsvd", "exception", "rank 1 fails on its part of the matrix, rank 0 waits in NCCL (before the first sweep)", "application-exception", "", (1,), early=True, loop=RSVD, args=RSVD_LONG, ready=JOINED, extra="spy2 ps",
     edits=(("    for at in range(0, own, 50000):\n", "    if a.rank == 1:\n        weight = cp.concatenate([weight, weight[:, -1:]], 1)\n        matrix = weight @ strong\n    for at in range(0, own, 50000):\n"),))
hung("rsvd", "order", "rank 1 sums the small matrix before the large one (first sweep)", "collective-order-mismatch", "shape-mismatch collective-desync op-mismatch silent-corruption", (), early=True, ranks_also=((0,), (1,)), loop=RSVD, args=(*RSVD_LONG, *WIDE), ready=JOINED, extra="spy2", limit=120,
     edits=(("        group.sum(back)\n        group.sum(gram)\n", "        for part in (gram, back) if a.rank else (back, gram):\n            group.sum(part)\n"),))
hung("rsvd", "vectors", "rank 1 is started for fewer vectors (before the first sweep)", "shape-mismatch", "rank-env-misconfigured collective-desync silent-corruption", (1,), early=True, ranks_also=((), (0,)), loop=RSVD.replace("--rank $r", "--rank $r --vectors $((64 - 56 * r))"), args=(*RSVD_LONG, *WIDE), ready=JOINED, extra="spy2", limit=120)
hung("rsvd", "sigkill", "kill -9 of rank 0 after the first sweep; rank 1 waits for ever", "process-killed", "peer-process-died", (0,), early=True, loop=RSVD, args=RSVD_LONG, act=(0, "SIGKILL"), ready=SWEEPS, extra="ps")
hung("rsvd", "few-sweeps", "rank 1 is started for forty sweeps only; rank 0 waits for ever", "rank-exited-early", "uneven-inputs skipped-collective rank-env-misconfigured", (1,), loop=RSVD.replace("{args}", "{args} $([ $r = 1 ] && echo --sweeps 40)"), args=RSVD_LONG, ready=SWEEPS, extra="stacks ps")
fault("rsvd", "slow-rank", "rank 1 waits longer before each sweep; the job runs on", "straggler", "load-imbalance host-bound sync-stalls rank-env-misconfigured data-loading-bound", (1,), category="performance", loop=RSVD.replace("{args}", "{args} --pause 0.$((1 + 3 * r))"), args=("--sweeps", "80"))

FAULTS = [replace(one, limit=120) if one.limit == 150 else one for one in F]
