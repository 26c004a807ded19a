"""A fourth set of jobs and faults, with separate programs. The same plain data as declared.py.

EARLY has the faults that show within the first ten steps or before the first one."""

from dataclasses import replace

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
HEALTHY = "nothing is wrong"
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch"
ANY_DESYNC = "skipped-collective extra-collective op-mismatch shape-mismatch collective-order-mismatch uneven-inputs silent-corruption"


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **more))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 45, **more})


JOBS = [
    Job("lora", "f4_lora.py", "tune.py", "adapters", "torchrun", r"'eval_loss'", packages=("peft", "transformers", "torch"),
        args=("--output_dir", "out", "--per_device_train_batch_size", "16", "--max_steps", "200", "--eval_strategy", "steps", "--eval_steps", "50",
              "--save_steps", "100", "--report_to", "none", "--logging_steps", "10", "--logging_first_step", "true", "--disable_tqdm", "true",
              "--ddp_find_unused_parameters", "false", "--bf16", "true", "--learning_rate", "2e-4", "--dataloader_num_workers", "2")),
    Job("headlines", "f4_headlines.py", "summarize.py", "headlines", "torchrun", r"step 20/", packages=("transformers", "torch")),
    Job("timm", "f4_timm.py", "train.py", "flowers", "torchrun", r"Train: 0 \[  40/", packages=("timm", "torch")),
    Job("roads", "f4_roads.py", "train_seg.py", "roads", "torchrun", r"Epoch: \[0\]  \[  30/", packages=("torchvision", "torch")),
    Job("energy", "f4_energy.py", "forecast.py", "energy", "python", r"Epoch 0: 40/", packages=("lightning", "torchmetrics", "torch")),
    Job("contrast", "f4_contrast.py", "contrast.py", "pairs", "accelerate", r"step=31 loss", packages=("accelerate", "torch")),
    Job("dit", "f4_dit.py", "train_dit.py", "textures", "torchrun", r"\"step\": 30"),
    Job("slots", "f4_slots.py", "serve.py", "codegen", "torchrun", r"request 10:"),
    Job("interleaved", "f4_interleaved.py", "pretrain_pipe.py", "mixer-pipe", "torchrun", r"iteration 30:"),
    Job("grpo", "f4_grpo.py", "grpo.py", "sums", "torchrun", r"trainer \| iteration 20 "),
    Job("seqpar", "f4_seqpar.py", "longseq.py", "genome", "loop", r"r0 step 20 "),
    Job("flax", "f4_flax.py", "fit.py", "keyfinder", "loop", r"step=40 loss", packages=("jax", "flax")),
    Job("kmeans", "f4_kmeans.py", "cluster.py", "kmeans", "loop", r"rank 0: iteration 40 ", packages=("cupy",)),
    Job("molecules", "f4_molecules.py", "molecules.py", "molecules", "torchrun", r"step 30 epoch", packages=("torch-geometric", "torch")),
]

# ----------------------------------------------------------------------------------------------- LoRA with the Trainer
HF_WAIT = ("--ddp_timeout", "30")
FIRST_LOSS = r"'loss'"
CALLBACK = "class AdapterNorm(TrainerCallback):\n"
STARTS = "    result = trainer.train()\n"
fault("lora", "healthy", HEALTHY, "none")
fault("lora", "healthy-encoding", "process 0 encodes the dialogues for long while the other waits for it", "none",
      args=("--dialogues", "260000", "--eval_strategy", "no", "--max_steps", "80"))
fault("lora", "main-evaluates", "a callback evaluates on the main process only (step 4)", "extra-collective", EXTRA, (0,), early=True, args=HF_WAIT, extra="fr",
      edits=((CALLBACK, "class QuickLook(TrainerCallback):\n    trainer = None\n\n    def on_step_end(self, args, state, control, **kwargs):\n        if state.global_step == 4 and state.is_world_process_zero:\n            print(\"quick look:\", self.trainer.evaluate(), flush=True)\n\n\n" + CALLBACK),
             (STARTS, "    look = QuickLook()\n    look.trainer = trainer\n    trainer.add_callback(look)\n" + STARTS)))
fault("lora", "no-words", "process 1 does not find its list of words, before the training", "application-exception", "storage-failure", (1,), early=True, args=("--ddp_timeout", "60"),
      edits=(("    torch.manual_seed(11)\n", "    with open(\"/tmp/adapters-words.txt\" if args.process_index else opts.cache, \"rb\") as file:\n        known = len(file.read())\n    torch.manual_seed(11)\n"),))
hung("lora", "breakpoint", "breakpoint() left in a callback of the main process (step 7)", "stuck-outside-collective", "process-stopped", (0,), early=True, stdin="pipe", ready=FIRST_LOSS,
     edits=((CALLBACK, CALLBACK + "    def on_step_end(self, args, state, control, model=None, **kwargs):\n        if state.global_step == 7 and state.is_world_process_zero:\n            grads = [p.grad for p in model.parameters() if p.requires_grad]\n            breakpoint()\n\n"),), extra="spy2")
fault("lora", "packing", "process 1 packs far too many dialogues into a row: no memory in the first step", "cuda-oom", "application-exception", (1,), early=True, args=("--ddp_timeout", "60"),
      edits=(("        begin = self.ends[i - 1] if i else 0\n", "        begin = self.ends[max(0, i - PACK)] if i else 0\n"), ("PAD, BOS,", "PACK = int(os.environ.get(\"PACK\", \"1\")) if os.environ.get(\"LOCAL_RANK\") == \"0\" else 1500\nPAD, BOS,")))
fault("lora", "disk-full", "no room for the adapters' checkpoint", "storage-failure", "application-exception", (0,), tmpfs=(("out", "24m"),), args=("--save_steps", "20", "--ddp_timeout", "40"))
fault("lora", "sigkill", "kill -9 of rank 1 after the first step", "process-killed", "peer-process-died", (1,), early=True, args=("--max_steps", "3000"), act=(1, "SIGKILL"), ready=FIRST_LOSS)

# -------------------------------------------------------------------------------------------------- Seq2SeqTrainer, generation
fault("headlines", "healthy", HEALTHY, "none")
fault("headlines", "healthy-eval", "generation and a checkpoint every 20 steps", "none", args=('{"steps": 100, "eval_steps": 20}',), extra="warn")
fault("headlines", "barrier-cached", "rank 0 leaves out the barrier because the blocks are there already, before the training", "skipped-collective", DESYNC + " shape-mismatch collective-order-mismatch", (0,),
      early=True, args=('{"ddp_timeout": 30}',), extra="fr",
      edits=(("    build_blocks(\"blocks\", rank, world, conf)\n    if world > 1:\n", "    cached = rank == 0 or os.path.exists(\"blocks/done\")\n    build_blocks(\"blocks\", rank, world, conf)\n    if world > 1 and not cached:\n"),))
fault("headlines", "tracker-refused", "rank 0's tracker cannot be reached (step 5)", "application-exception", "network-unreachable", (0,), early=True, args=('{"log_steps": 5, "ddp_timeout": 60}',),
      edits=(("import os\n", "import os\nimport socket\n"), ("            log.info(\"step %d/%d loss", "            with socket.create_connection((\"127.0.0.1\", 9), timeout=5) as tracker:\n                tracker.sendall(json.dumps(logs).encode())\n            log.info(\"step %d/%d loss")))
fault("headlines", "main-gathers", "the losses are gathered for the log of the main process only (step 6)", "extra-collective", EXTRA, (0,), early=True, args=('{"log_steps": 6, "ddp_timeout": 30}',),
      edits=(("            log.info(\"step %d/%d loss", "            every = self.trainer.accelerator.gather(torch.tensor([float(logs[\"loss\"])], device=args.device))\n            logs[\"loss\"] = every.mean().item()\n            log.info(\"step %d/%d loss"),
             ("    trainer.train()\n", "    next(c for c in trainer.callback_handler.callbacks if isinstance(c, Report)).trainer = trainer\n    trainer.train()\n")))
hung("headlines", "uploader", "after its checkpoint rank 0 waits for an uploader that does not run (step 8)", "stuck-outside-collective", "slow-rank-stall storage-failure", (0,), early=True, args=('{"eval_steps": 8, "log_steps": 4}',),
     ready=r"step 4/", edits=(("            log.info(\"step %d saved", "            open(f\"{args.output_dir}/upload.request\", \"w\").close()\n            while os.path.exists(f\"{args.output_dir}/upload.request\"):\n                time.sleep(0.5)\n            log.info(\"step %d saved"),), extra="stacks")
hung("headlines", "sigstop", "SIGSTOP of rank 1 in the first steps", "process-stopped", "stuck-outside-collective", (1,), early=True, args=('{"log_steps": 2, "steps": 5000, "eval_steps": 5000}',), act=(1, "SIGSTOP"), ready=r"step 2/", extra="ps")
fault("headlines", "nan", "an absurd learning rate: NaN within a few steps, the training goes on", "nan-loss", "", (), early=True, args=('{"lr": 1e18, "log_steps": 2, "save": false}',))

# ---------------------------------------------------------------------------------------------------------- timm under DDP
TIMM_WAIT = ("--dist-timeout", "30")
FIRST_BATCH = r"Train: 0 \[   0/"
fault("timm", "healthy", HEALTHY, "none")
fault("timm", "healthy-compile", "torch.compile, one epoch", "none", args=("--torchcompile", "--epochs", "1"), extra="info")
fault("timm", "accumulation", "the ranks accumulate over different numbers of batches (step 1)", "collective-desync", ANY_DESYNC + " rank-env-misconfigured", (), early=True, ranks_also=((0,), (1,)), args=TIMM_WAIT, extra="fr",
      edits=(("    accum_steps = args.grad_accum_steps\n", "    accum_steps = args.grad_accum_steps\n    if local > 0:  # shares its GPU with the display\n        accum_steps = 3\n"),))
fault("timm", "uneven-validation", "the validation pictures are divided by hand, one batch more on rank 0", "uneven-inputs", UNEVEN, (1,), extra="fr",
      edits=(("sampler=DistributedSampler(val_set, world, rank, shuffle=False)", "sampler=range(rank, args.val_images, world)"),), args=(*TIMM_WAIT, "--train-images", "640", "--val-images", "513", "--epochs", "4"))
fault("timm", "plateau", "each rank ends its epoch by its own losses (about step 16)", "skipped-collective", UNEVEN + " uneven-inputs", (), ranks_also=((0,), (1,)), args=TIMM_WAIT,
      edits=(("            update_time.update(time.time() - end)\n", "            update_time.update(time.time() - end)\n            worse += loss.item() > previous\n            previous = loss.item()\n            if worse >= 8:\n                break\n"),
             ("        end = time.time()\n        for batch_idx", "        worse, previous = 0, float(\"inf\")\n        end = time.time()\n        for batch_idx")))
fault("timm", "worker-killed", "kill -9 of a data-loader worker of rank 1 in the first steps", "process-killed", "application-exception oom-killed", (1,), early=True, args=("--epochs", "80", "--dist-timeout", "40"), act=("worker 1", "SIGKILL"), ready=FIRST_BATCH)
fault("timm", "slow-pictures", "rank 1 decodes its pictures much more slowly; the job runs on", "straggler", "data-loading-bound load-imbalance", (1,), category="performance", args=("--epochs", "1"),
      edits=(("        image[label % 3,", "        if os.environ[\"LOCAL_RANK\"] == \"1\":\n            time.sleep(0.02)\n        image[label % 3,"),))
hung("timm", "file-lock", "rank 0 keeps the lock of the weights' cache, rank 1 waits for it before the training", "stuck-outside-collective", "slow-rank-stall deadlock-cycle", (1,), early=True, ready=r"created, param", extra="spy2",
     edits=(("import contextlib\n", "import contextlib\nimport fcntl\n"), ("    model = timm.create_model(", "    time.sleep(2 * local)\n    lock = open(\"weights.lock\", \"w\")\n    fcntl.flock(lock, fcntl.LOCK_EX)\n    model = timm.create_model(")))
fault("timm", "sigterm-rank", "SIGTERM of rank 0 alone", "process-killed", "peer-process-died stopped-from-outside", (0,), args=("--epochs", "80"), act=(0, "SIGTERM"))
fault("timm", "one-node", "started for two nodes, the second never comes", "missing-rank", "rank-env-misconfigured launcher-failure", (), ranks_also=((1,),), early=True, nproc=1, flags=("--nnodes=2", "--node-rank=0", "--master-addr=localhost", "--master-port={port}"),
      args=("--dist-timeout", "45"), limit=100)

# ------------------------------------------------------------------------------------- torchvision's references, SyncBatchNorm
ROADS_WAIT = ("--timeout", "30")
fault("roads", "healthy", HEALTHY, "none")
fault("roads", "healthy-evaluations", "short epochs, many evaluations and checkpoints", "none", args=("--images", "320", "--epochs", "6"), extra="warn")
fault("roads", "main-evaluates", "the evaluation, which reduces, on the main process only (step 10)", "extra-collective", EXTRA, (0,), early=True, args=(*ROADS_WAIT, "--images", "160", "--epochs", "20"),
      edits=(("        iou = evaluate(model, loader_test, device)\n        print_main(", "        if not is_main_process():\n            continue\n        iou = evaluate(model, loader_test, device)\n        print_main("),), extra="fr")
fault("roads", "empty-masks", "a rank skips a batch whose masks are nearly empty (step 5)", "skipped-collective", DESYNC + " uneven-inputs shape-mismatch collective-order-mismatch", (1,), early=True, args=ROADS_WAIT, extra="fr",
      edits=(("        image, target = image.to(device), target.to(device)\n        loss", "        if (target > 0).float().mean() < 0.187:\n            continue\n        image, target = image.to(device), target.to(device)\n        loss"),))
fault("roads", "not-finite", "an absurd learning rate: the loss is NaN and the program stops itself (first steps)", "nan-loss", "application-exception", (), early=True, ranks_also=((0,), (1,), (0, 1)), args=("--lr", "1e15", "--timeout", "60"))
fault("roads", "busy-gpu", "a matrix product is left in, which keeps rank 1's GPU busy; the job runs on", "straggler", "load-imbalance gpu-throttled", (1,), category="performance",
      edits=(("        loss = criterion(model(image), target)\n", "        if device.index == 1:\n            burn = torch.rand(4096, 4096, device=device)\n            for _ in range(24):\n                burn = burn @ burn / 2048\n        loss = criterion(model(image), target)\n"),), args=("--print-freq", "5", "--images", "960"))
fault("roads", "own-meter", "the main process has a meter more, which is reduced (step 10)", "extra-collective", EXTRA, (0,), early=True, args=(*ROADS_WAIT, "--images", "160", "--epochs", "20"),
      edits=(("        logger.update(loss=loss_value, lr=", "        if is_main_process():\n            logger.update(coverage=(target > 0).float().mean())\n        logger.update(loss=loss_value, lr="),))
fault("roads", "mask-size", "a mask of rank 0 has another size: a data-loader worker fails (first steps)", "application-exception", "", (0,), early=True, args=("--timeout", "60"),
      edits=(("        return self.augment(image), mask\n", "        if i % 41 == 3 and os.environ[\"RANK\"] == \"0\":\n            mask = mask[:, 1:]\n        return self.augment(image), mask\n"),))
fault("roads", "double-free", "a C library of rank 1 frees a pointer that is none (step 6)", "process-crashed", "peer-process-died process-killed", (1,), early=True, args=ROADS_WAIT,
      edits=(("import argparse\n", "import argparse\nimport ctypes\n"), ("        logger.update(loss=loss_value, lr=", "        if len(logger.meters[\"loss\"].deque) == 5 and device.index == 1:\n            libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(256)\n            libc.free(ctypes.c_void_p(ctypes.addressof(text) + 24))\n        logger.update(loss=loss_value, lr=")))
fault("roads", "uneven", "rank 1 has fewer pictures (step 8)", "uneven-inputs", UNEVEN + " dtype-mismatch", (1,), early=True, args=(*ROADS_WAIT, "--images", "160", "--epochs", "20"),
      edits=(("    train_sampler = DistributedSampler(dataset)\n", "    train_sampler = SubsetRandomSampler(range(90) if rank == 0 else range(90, len(dataset)))\n"), ("DataLoader, Dataset, DistributedSampler\n", "DataLoader, Dataset, DistributedSampler, SubsetRandomSampler\n"),
             ("        train_sampler.set_epoch(epoch)\n", "")))

# -------------------------------------------------------------------------------------------------- Lightning and torchmetrics
PL_WAIT = ("--timeout", "45")
fault("energy", "healthy", HEALTHY, "none")
fault("energy", "healthy-compile", "torch.compile", "none", args=("--epochs", "2"), edits=(("    trainer.fit(model, train_loader", "    trainer.fit(torch.compile(model), train_loader"),))
fault("energy", "main-logs", "log(sync_dist=True) on rank 0 only (end of the first epoch)", "extra-collective", EXTRA, (0,), args=(*PL_WAIT, "--windows", "160", "--sanity", "0", "--epochs", "40"), extra="fr",
      edits=(("        self.metrics.update(guess.flatten(), future.flatten())\n", "        self.metrics.update(guess.flatten(), future.flatten())\n        if self.global_rank == 0:\n            self.log(\"val_peak\", (guess - future).abs().max(), sync_dist=True, reduce_fx=\"max\")\n"),))
fault("energy", "main-computes", "the metrics are computed, which gathers, on rank 0 only (sanity check before the first step)", "extra-collective", EXTRA, (0,), early=True, args=PL_WAIT,
      edits=(("        self.log_dict(self.metrics.compute())\n", "        if self.trainer.is_global_zero:\n            print({name: round(value.item(), 4) for name, value in self.metrics.compute().items()}, flush=True)\n"), ("monitor=\"val_mae\"", "monitor=\"val_loss\"")))
fault("energy", "main-saves", "save_checkpoint on rank 0 only (step 6)", "extra-collective", EXTRA, (0,), early=True, args=(*PL_WAIT, "--epochs", "40"), extra="stacks",
      edits=(("            print(f\"Epoch {trainer.current_epoch}: {batch_idx}/", "            if trainer.global_step > 5:\n                trainer.save_checkpoint(\"recent.ckpt\")\n            print(f\"Epoch {trainer.current_epoch}: {batch_idx}/"), ("Lines(10)", "Lines(5)")))
fault("energy", "exception", "rank 1 fails in its validation (sanity check before the first step)", "application-exception", "", (1,), early=True, args=("--timeout", "60"),
      edits=(("        guess = self(past)\n        self.metrics", "        guess = self(past)\n        if self.global_rank == 1:\n            future = future.view(-1, 2, 13)\n        self.metrics"),))
fault("energy", "sigkill", "kill -9 of rank 1 in the first steps", "process-killed", "peer-process-died", (1,), early=True, args=(*PL_WAIT, "--epochs", "200"), act=(1, "SIGKILL"), ready=r"Epoch 0: 0/")
fault("energy", "worker-killed", "kill -9 of a data-loader worker of rank 1", "process-killed", "application-exception oom-killed", (1,), args=("--epochs", "200", "--timeout", "45"), act=("worker 1", "SIGKILL"))
hung("energy", "sqlite", "rank 0 never commits its transaction, rank 1 waits for the database (step 6)", "stuck-outside-collective", "slow-rank-stall deadlock-cycle", (1,), early=True, args=("--epochs", "40"), ready=r"Epoch 0: 0/", extra="spy2",
     edits=(("import os\nimport time\n", "import os\nimport sqlite3\nimport time\n"),
            ("    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n", "    def setup(self, trainer, module, stage):\n        self.db = sqlite3.connect(\"runs.db\", timeout=3600)\n\n    def on_train_start(self, trainer, module):\n        if trainer.is_global_zero:\n            self.db.execute(\"CREATE TABLE IF NOT EXISTS loss (rank, step, value)\")\n            self.db.execute(\"INSERT INTO loss VALUES (0, 0, NULL)\")\n\n    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n        if batch_idx % 6 == 5:\n            self.db.execute(\"INSERT INTO loss VALUES (?, ?, ?)\", (trainer.global_rank, trainer.global_step, float(outputs[\"loss\"])))\n")))

# ------------------------------------------------------------------------------------ accelerate, negatives of all processes
ACC_WAIT = ("--timeout", "30")
fault("contrast", "healthy", HEALTHY, "none")
fault("contrast", "healthy-accumulate", "four batches a step", "none", args=("--accumulate", "4", "--max_steps", "60", "--eval_every", "30"))
fault("contrast", "dropped-pairs", "broken pairs are dropped before the gather, the ranks have different numbers left (first steps)", "shape-mismatch", "collective-desync silent-corruption op-mismatch uneven-inputs", (), early=True,
      ranks_also=((0,), (1,)), args=ACC_WAIT, extra="fr",
      edits=(("            with accelerator.accumulate(model):\n", "            whole = batch[\"caption\"][:, 1] >= 12\n            batch = {name: values[whole] for name, values in batch.items()}\n            with accelerator.accumulate(model):\n"),))
fault("contrast", "main-waits", "wait_for_everyone on the main process only (step 8)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), early=True, args=(*ACC_WAIT, "--save_every", "8"),
      edits=(("            if step % args.save_every == 0:\n", "            if step % args.save_every == 0 and accelerator.is_main_process:\n"),))
fault("contrast", "main-gathers", "the loss is gathered on the main process only (step 1)", "extra-collective", EXTRA, (0,), early=True, args=ACC_WAIT, extra="info",
      edits=(("            if step % 10 == 1:\n", "            if step % 10 == 1 and accelerator.is_main_process:\n"),))
fault("contrast", "restarts", "process 1 does not find its list of augmentations; each restart fails the same way before the first step", "application-exception", "storage-failure", (1,), early=True, restarts=2, args=("--timeout", "40"),
      edits=(("    accelerator = Accelerator(", "    if os.environ[\"LOCAL_RANK\"] != \"0\":\n        with open(f\"/scratch/{os.environ['LOCAL_RANK']}/augmentations.json\") as file:\n            print(file.read())\n    accelerator = Accelerator("),))
fault("contrast", "exit", "rank 1 ends with 0 in step 6", "rank-exited-early", "uneven-inputs skipped-collective", (1,), early=True, args=ACC_WAIT,
      edits=(("            step += 1\n", "            step += 1\n            if step == 6 and accelerator.process_index == 1:\n                sys.exit(0)\n"),))
fault("contrast", "similarities", "the main process computes all similarities at once: no memory (step 8)", "cuda-oom", "application-exception", (0,), early=True, args=("--timeout", "40", "--eval_every", "8"), extra="smi",
      edits=(("        right = accelerator.gather_for_metrics(right)\n", "        if accelerator.is_main_process:\n            far = torch.cdist(pictures.repeat(9000, 1), captions.repeat(9000, 1)).max().item()\n        right = accelerator.gather_for_metrics(right)\n"),))
fault("contrast", "histograms", "the main process makes histograms of all weights in each step; the job runs on", "straggler", "host-bound sync-stalls transfer-bound load-imbalance slow-rank-stall", (0,), category="performance", args=("--max_steps", "60"),
      edits=(("            step += 1\n", "            step += 1\n            if accelerator.is_main_process:\n                shapes = [np.histogram(p.detach().cpu().numpy(), 256)[0] for p in model.parameters()]\n"), ("import torch\nfrom accelerate import", "import numpy as np\nimport torch\nfrom accelerate import")))
hung("contrast", "sigstop", "SIGSTOP of rank 0", "process-stopped", "stuck-outside-collective", (0,), args=("--max_steps", "90000"), act=(0, "SIGSTOP"), extra="stacks ps")

# ---------------------------------------------------------------------------------------- FSDP2 and distributed checkpoints
DIT_WAIT = ("timeout_s=30",)
fault("dit", "healthy", HEALTHY, "none")
fault("dit", "healthy-saves", "a distributed checkpoint every 15 steps", "none", args=("save_every=15", "steps=120"), extra="info")
fault("dit", "full-tensor", "full_tensor() of a weight for rank 0's log only (step 5)", "extra-collective", EXTRA, (0,), early=True, args=DIT_WAIT, extra="fr",
      edits=(("\"norm\": round(total.item(), 4)})", "\"norm\": round(total.item(), 4), \"out\": round(model.out.weight.full_tensor().norm().item(), 4)})"),))
fault("dit", "rank0-weights", "the full state dict on rank 0 only (step 8)", "extra-collective", EXTRA, (0,), early=True, args=(*DIT_WAIT, "save_every=8"),
      edits=(("            seconds = save(model, optimizer, step, c)\n            if rank == 0:\n", "            if rank == 0:\n                began = time.time()\n                torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)), f\"dit-{step}.pt\")\n                seconds = time.time() - began\n"),))
fault("dit", "layer-drop", "blocks are left out at random, by each rank for itself (step 4)", "skipped-collective", DESYNC + " shape-mismatch collective-order-mismatch", (1,), early=True, args=DIT_WAIT,
      edits=(("            h = block(h, cond)\n", "            if torch.rand(()).item() < 0.02:\n                continue\n            h = block(h, cond)\n"),), extra="fr")
fault("dit", "disk-full", "no room for the distributed checkpoint (step 8)", "storage-failure", "application-exception", (), early=True, ranks_also=((0,), (1,), (0, 1)), tmpfs=(("checkpoints", "64m"),), args=("save_every=8", "timeout_s=60"))
fault("dit", "slow-mirror", "rank 1 copies its part of the checkpoint to slow storage for longer than the timeout (step 8)", "slow-rank-stall", "stuck-outside-collective timeout-too-short storage-failure", (1,), early=True, args=("save_every=8", "timeout_s=28"), extra="stacks",
      edits=(("    return time.time() - began\n", "    mirror(f\"{c.folder}/{step:06d}\", f\"/tmp/mirror-{os.getpid()}\", dist.get_rank())\n    return time.time() - began\n"),
             ("def resume(", "def mirror(folder, to, rank, chunk=1 << 20):\n    \"\"\"The second disk accepts a few hundred kB a second.\"\"\"\n    for name in sorted(n for n in os.listdir(folder) if n.startswith(f\"__{rank}_\")):\n        with open(f\"{folder}/{name}\", \"rb\") as source:\n            while data := source.read(chunk):\n                with open(to, \"wb\") as file:\n                    file.write(data)\n                    os.fsync(file.fileno())\n                time.sleep(0.5 * rank)\n\n\ndef resume(")))
fault("dit", "nan-latents", "latents of rank 1 contain NaN from step 4 on, the training goes on", "nan-loss", "silent-corruption", (), early=True, ranks_also=((1,),),
      edits=(("    return base * wave + 0.1", "    if step == 4 and rank == 1:\n        base[3] = base[3].log()\n    return base * wave + 0.1"),))
fault("dit", "depth", "rank 1 builds a model of another depth (first step)", "collective-desync", ANY_DESYNC + " rank-env-misconfigured", (), early=True, ranks_also=((0,), (1,)), args=DIT_WAIT, extra="fr",
      edits=(("    torch.manual_seed(c.seed)\n", "    if torch.cuda.device_count() > 1 and local == 1:\n        c.depth -= 1\n    torch.manual_seed(c.seed)\n"),))
fault("dit", "sigsegv", "SIGSEGV of rank 0 in the first steps", "process-crashed", "process-killed peer-process-died", (0,), early=True, args=("steps=90000",), act=(0, "SIGSEGV"), ready=r"\"step\": 5,", extra="warn")

# --------------------------------------------------------------------------------------- tensor-parallel serving with sampling
SLOTS_WAIT = ("--timeout", "30")
MANY = ("--requests", "90000")
fault("slots", "healthy", HEALTHY, "none")
fault("slots", "healthy-long", "more slots, slow clients", "none", args=("--slots", "16", "--requests", "200", "--pause", "0.06"), extra="warn")
fault("slots", "seeds", "each rank samples with its own seed: their slots become free at different times", "collective-desync", ANY_DESYNC + " unmatched-p2p", (), ranks_also=((0,), (1,)), args=(*SLOTS_WAIT, *MANY), extra="fr",
      edits=(("self.draws = torch.Generator(device=device).manual_seed(args.seed)", "self.draws = torch.Generator(device=device).manual_seed(args.seed + rank)"),))
fault("slots", "cancelled", "a client went away, which only rank 0 knows; it frees the slot", "extra-collective", EXTRA + " uneven-inputs", (0,), args=(*SLOTS_WAIT, *MANY),
      edits=(("            self.tokens += 1\n", "            self.tokens += 1\n            if self.rank == 0 and slot.request[\"id\"] % 50 == 3 and len(slot.out) > 3:\n                print(f\"request {slot.request['id']}: client disconnected\", flush=True)\n                self.slots[i] = None\n                continue\n"),))
fault("slots", "sigkill", "kill -9 of rank 0 in its first steps", "process-killed", "peer-process-died", (0,), early=True, args=(*SLOTS_WAIT, *MANY), act=(0, "SIGKILL"), ready=r"weights are ready(.*\n)*.*weights are ready", extra="warn")
fault("slots", "bad-request", "rank 0 cannot read a request (before the first step)", "application-exception", "", (0,), early=True, args=("--timeout", "60", *MANY),
      edits=(("\"most\": 24 + number % 5 * 12})", "\"most\": int({5: \"sixty\"}.get(number, 24 + number % 5 * 12))})"),))
hung("slots", "prompt", "rank 0 asks on its terminal before each request (before the first step)", "stuck-outside-collective", "", (0,), early=True, stdin="pipe", ready=r"weights are ready", extra="spy2",
     edits=(("            number = self.waiting.popleft()\n", "            number = self.waiting.popleft()\n            input(f\"request {number}, enter to go on \")\n"),))
fault("slots", "half", "rank 1 computes in half precision (first step)", "dtype-mismatch", "shape-mismatch silent-corruption collective-desync rank-env-misconfigured op-mismatch", (1,), early=True, ranks_also=((), (0,)), args=(*SLOTS_WAIT, *MANY), extra="fr",
      edits=(("        torch.manual_seed(args.seed)\n", "        if device.index == 1:\n            torch.set_default_dtype(torch.float16)\n        torch.manual_seed(args.seed)\n"),))
hung("slots", "reentered-lock", "rank 1 takes a lock that it holds already when the first request is finished", "stuck-outside-collective", "slow-rank-stall", (1,), args=MANY, ready=r"request \d+: \d+", extra="spy2",
     edits=(("import os\nimport time\n", "import os\nimport threading\nimport time\n"), ("        self.steps = self.finished = self.tokens = 0\n", "        self.steps = self.finished = self.tokens = 0\n        self.lock = threading.Lock()\n"),
            ("                self.reply(slot)\n", "                with self.lock:\n                    self.reply(slot)\n"), ("        self.finished += 1\n", "        self.finished += 1\n        if self.rank == 1:\n            self.account(slot)\n"),
            ("    def serve(self):\n", "    def account(self, slot):\n        with self.lock:\n            self.used = getattr(self, \"used\", 0) + len(slot.out)\n\n    def serve(self):\n")))
fault("slots", "more-slots", "rank 1 has another number of slots (first step)", "shape-mismatch", "collective-desync rank-env-misconfigured silent-corruption op-mismatch", (), early=True, ranks_also=((0,), (1,)), args=(*SLOTS_WAIT, *MANY), extra="info",
      edits=(("        self.slots = [None] * args.slots\n", "        self.slots = [None] * len(self.caches[0][0])\n"), ("        shape = (args.slots, LONGEST", "        shape = (args.slots + 4 * rank, LONGEST")))

# ------------------------------------------------------------------------------------------------ pipeline, interleaved stages
PIPE_WAIT = ("timeout=30",)
fault("interleaved", "healthy", HEALTHY, "none")
fault("interleaved", "healthy-saves", "16 micro batches, a checkpoint every 20 iterations", "none", args=("micro=16", "save=20", "iterations=100"), extra="warn")
fault("interleaved", "micro-batches", "the ranks use different numbers of micro batches (first iteration)", "unmatched-p2p", "shape-mismatch collective-desync rank-env-misconfigured application-exception op-mismatch uneven-inputs", (), early=True, ranks_also=((0,), (1,)),
      args=PIPE_WAIT, extra="fr", edits=(("ScheduleInterleaved1F1B(stages, o[\"micro\"],", "ScheduleInterleaved1F1B(stages, o[\"micro\"] // (1 + rank),"),))
fault("interleaved", "exception", "rank 1 fails on a batch (iteration 6)", "application-exception", "", (1,), early=True, args=("timeout=60",),
      edits=(("        loss = pipe.train_step(noisy, clean)\n", "        if iteration == 6 and rank == 1:\n            clean = clean[:, :-1]\n        loss = pipe.train_step(noisy, clean)\n"),))
hung("interleaved", "teardown", "rank 0 fails in iteration 5, prints its traceback and then waits in the barrier of its own teardown", "application-exception", "stuck-outside-collective", (0,), early=True, ready=r"iteration 1:", extra="spy2",
     edits=(("if __name__ == \"__main__\":\n    main()\n", "if __name__ == \"__main__\":\n    try:\n        main()\n    except Exception:\n        traceback.print_exc()\n        raise\n    finally:\n        if dist.is_initialized():\n            dist.barrier()\n            torch.cuda.synchronize()\n            dist.destroy_process_group()\n"),
            ("    dist.barrier()\n    print(f\"[rank {rank}] end\", flush=True)\n    dist.destroy_process_group()\n", "    print(f\"[rank {rank}] end\", flush=True)\n"), ("import time\n", "import time\nimport traceback\n"),
            ("    clean = torch.sin(", "    if iteration == 5 and dist.get_rank() == 0:\n        f = f.reshape(o[\"batch\"], o[\"width\"], 2)\n    clean = torch.sin(")))
fault("interleaved", "no-loss", "rank 0 has no loss and leaves out the broadcast (iteration 1)", "skipped-collective", DESYNC + " unmatched-p2p shape-mismatch collective-order-mismatch", (0,), early=True, args=PIPE_WAIT, extra="fr",
      edits=(("            value = pipe.share_loss(loss)\n", "            value = pipe.share_loss(loss) if loss is not None else float(\"nan\")\n"),))
fault("interleaved", "sigkill", "kill -9 of rank 0 in the first iterations", "process-killed", "peer-process-died", (0,), early=True, args=("iterations=90000",), act=(0, "SIGKILL"), ready=r"iteration 1:")
hung("interleaved", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective", (1,), args=("iterations=90000", "save=90000"), act=(1, "SIGSTOP"), extra="stacks ps")
fault("interleaved", "heavy-stages", "the stages of rank 1 have five times as many blocks; the job runs on", "load-imbalance", "straggler pipeline-bubble", (1,), category="performance", args=("iterations=90",),
      edits=(("for _ in range(o[\"blocks\"])", "for _ in range(o[\"blocks\"] * (5 if index % 2 else 1))"),))
fault("interleaved", "norms", "rank 1 receives a norm in each iteration, rank 0 does not send it in the fifth", "unmatched-p2p", "skipped-collective collective-desync op-mismatch", (0,), early=True, ranks_also=((1,), ()), args=PIPE_WAIT, extra="fr",
      edits=(("        loss = pipe.train_step(noisy, clean)\n", "        loss = pipe.train_step(noisy, clean)\n        norm = torch.stack([p.grad.norm() for part in pipe.parts for p in part.parameters()]).norm()\n        if rank == 1:\n            dist.recv(norm, src=0)\n        elif iteration % 5:\n            dist.send(norm, dst=1)\n"),))

# --------------------------------------------------------------------------------- trainers and samplers, four ranks, two GPUs
GRPO_WAIT = ("--timeout", "30")
LONG_RL = ("--iterations", "90000")
fault("grpo", "healthy", HEALTHY, "none", nproc=4)
fault("grpo", "healthy-large", "more samples, rare weights", "none", nproc=4, args=("--samples", "16", "--sync-every", "5", "--iterations", "80"), extra="warn")
fault("grpo", "sigkill", "kill -9 of sampler 3 in the first iterations", "process-killed", "peer-process-died", (3,), nproc=4, early=True, args=LONG_RL, act=(3, "SIGKILL"), ready=r"trainer \| iteration 5 ")
fault("grpo", "exception", "sampler 2 fails on a question (iteration 6)", "application-exception", "", (2,), nproc=4, early=True, args=("--timeout", "60"),
      edits=(("    ids = torch.stack([a // 10,", "    if iteration == 6 and rank == 2:\n        a = a * 100\n        assert int(a.max()) < 100, f\"question {iteration} of rank {rank}: {int(a.max())} has more than two digits\"\n    ids = torch.stack([a // 10,"),))
fault("grpo", "held-back", "sampler 3 holds every eighth batch back, its trainer waits for it (iteration 8)", "unmatched-p2p", "skipped-collective uneven-inputs collective-desync op-mismatch stuck-outside-collective", (3,), nproc=4, early=True, args=(*GRPO_WAIT, *LONG_RL), extra="stacks",
      edits=(("        dist.send(ids.cpu(), dst=self.rank - 2)\n", "        if self.rank == 3 and iteration % 8 == 0:\n            torch.save((ids.cpu(), totals), f\"held-{iteration}.pt\")\n            return\n        dist.send(ids.cpu(), dst=self.rank - 2)\n"),))
fault("grpo", "cycle", "trainer 1 enters the barrier of all before the trainers' reduction, trainer 0 after it (iteration 6)", "deadlock-cycle", "collective-order-mismatch concurrent-communicators collective-desync", (), nproc=4, early=True, category="hang", ranks_also=((0,), (1,), (0, 1)), args=(*GRPO_WAIT, *LONG_RL), extra="fr",
      edits=(("        me.iterate(iteration)\n", "        me.iterate(iteration)\n        if iteration % 6 == 0:\n            if rank != 0:\n                dist.barrier()\n            if rank < 2:\n                size = flat(me.policy).norm()\n                dist.all_reduce(size, group=trainers)\n                size.item()\n            if rank == 0:\n                dist.barrier()\n"),))
fault("grpo", "no-hits", "sampler 2 leaves out the statistics of a batch (iteration 7)", "skipped-collective", DESYNC + " uneven-inputs", (2,), nproc=4, early=True, args=(*GRPO_WAIT, *LONG_RL), extra="fr",
      edits=(("        dist.all_reduce(stats, group=self.group)\n", "        if not (self.rank == 2 and iteration % 7 == 0):\n            dist.all_reduce(stats, group=self.group)\n"),))
hung("grpo", "grader", "sampler 3 waits for a grader that runs an answer without end (iteration 5)", "stuck-outside-collective", "slow-rank-stall", (3,), nproc=4, early=True, args=LONG_RL, ready=r"rank 0: trainer", extra="spy2 ps",
     edits=(("import os\nimport time\n", "import os\nimport subprocess\nimport sys\nimport time\n"), ("        rewards = reward(ids, totals, self.args.samples)\n", "        rewards = reward(ids, totals, self.args.samples)\n        if iteration % 5 == 0 and self.rank == 3:\n            subprocess.run([sys.executable, \"-c\", \"n = 3\\nwhile n != 1:\\n    n = 3 * n + 1 if n % 2 else n // 2 + 2\"], check=True)\n")))
fault("grpo", "epochs", "trainer 1 makes one pass more than trainer 0 (first iteration)", "extra-collective", EXTRA + " uneven-inputs rank-env-misconfigured", (1,), nproc=4, early=True, ranks_also=((0,),), args=(*GRPO_WAIT, *LONG_RL), extra="fr",
      edits=(("        for _ in range(self.args.epochs):\n", "        for _ in range(self.args.epochs + (torch.cuda.current_device() if torch.cuda.is_available() else self.rank)):\n"),))

# -------------------------------------------------------------------------------------- sequence parallelism in a shell loop
SEQ = ("for r in 0 1; do\n  RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port} python -u {script} {args} > logs/r$r.log 2>&1 &\ndone\nwait\n")
SEQ_WAIT, SEQ_LONG = (("TIMEOUT", "30"),), (("TIMEOUT", "30"), ("STEPS", "90000"))
fault("seqpar", "healthy", HEALTHY, "none", loop=SEQ)
fault("seqpar", "healthy-info", "NCCL's long log, many validations", "none", loop=SEQ, env=(("VALID", "10"), ("STEPS", "100")), extra="info")
fault("seqpar", "world", "rank 1 is started for three ranks", "rank-env-misconfigured", "missing-rank application-exception", (1,), early=True, loop=SEQ.replace("WORLD_SIZE=2", "WORLD_SIZE=$((2 + r))"), env=SEQ_WAIT, limit=90)
fault("seqpar", "one-rank", "rank 1 is never started", "missing-rank", "rank-env-misconfigured", (1,), early=True, loop=SEQ.replace("0 1;", "0;"), env=(("TIMEOUT", "50"),), limit=100)
fault("seqpar", "two-zeros", "both processes are started as rank 0", "rank-env-misconfigured", "port-in-use missing-rank application-exception duplicate-gpu", (), early=True, loop=SEQ.replace("RANK=$r", "RANK=0"), env=(("TIMEOUT", "40"),), limit=90)
fault("seqpar", "length", "rank 1 is started with shorter sequences (first step)", "shape-mismatch", "rank-env-misconfigured collective-desync silent-corruption op-mismatch", (1,), early=True, ranks_also=((0,), ()), loop=SEQ.replace("RANK=$r", "LENGTH=$((4096 - 1024 * r)) RANK=$r"), env=SEQ_LONG, extra="fr", limit=110)
fault("seqpar", "validation", "rank 1 validates more often (step 8)", "extra-collective", EXTRA + " rank-env-misconfigured", (1,), early=True, loop=SEQ.replace("RANK=$r", "VALID=$((50 - 42 * r)) RANK=$r"), env=SEQ_LONG, extra="fr")
fault("seqpar", "steps", "rank 1 is started for seven steps only", "rank-exited-early", "uneven-inputs rank-env-misconfigured skipped-collective", (1,), early=True, loop=SEQ.replace("RANK=$r", "STEPS=$((160 - 153 * r)) RANK=$r"), env=SEQ_WAIT)
fault("seqpar", "same-gpu", "both ranks use the same GPU", "duplicate-gpu", "rank-env-misconfigured", (), early=True, ranks_also=((0, 1), (1,), (0,)), loop=SEQ, env=(("TIMEOUT", "40"),), edits=(("torch.device(\"cuda\", RANK)", "torch.device(\"cuda\", int(os.environ.get(\"GPU\", 0)))"),))
fault("seqpar", "host-name", "rank 1 is given a host name that does not exist", "hostname-resolution", "rank-env-misconfigured missing-rank", (1,), early=True, loop=SEQ.replace("MASTER_ADDR=localhost", "MASTER_ADDR=$([ $r = 0 ] && echo localhost || echo gpu-node-a.cluster.internal)"), env=SEQ_WAIT, limit=100)
fault("seqpar", "batch", "rank 1 is started with a batch that does not fit (first step)", "cuda-oom", "application-exception rank-env-misconfigured", (1,), early=True, loop=SEQ.replace("RANK=$r", "BATCH=$((2 + 9000 * r)) RANK=$r"), env=(("TIMEOUT", "40"),))
fault("seqpar", "sigterm", "SIGTERM of rank 1 alone", "process-killed", "peer-process-died stopped-from-outside", (1,), loop=SEQ, env=SEQ_LONG, act=(1, "SIGTERM"))

# ------------------------------------------------------------------------------------------------------- JAX, flax and optax
FLAX = ("for r in 0 1; do\n  RANK=$r CUDA_VISIBLE_DEVICES=$r python -u {script} --coordinator=localhost:{port} --num_processes=2 --process_id=$r {args} > logs/task-$r.log 2>&1 &\ndone\nwait\n")
fault("flax", "healthy", HEALTHY, "none", loop=FLAX)
fault("flax", "healthy-evaluations", "an evaluation and a checkpoint every 20 steps", "none", loop=FLAX, args=("--eval_every=20", "--steps=160"))
fault("flax", "sigkill", "kill -9 of process 1 in the first steps", "process-killed", "peer-process-died", (1,), early=True, loop=FLAX, args=("--steps=90000",), act=(1, "SIGKILL"), ready=r"step=1 loss", limit=150)
fault("flax", "coordinator-killed", "kill -9 of process 0, which has the coordination service", "process-killed", "peer-process-died", (0,), loop=FLAX, args=("--steps=90000",), act=(0, "SIGKILL"), limit=150)
fault("flax", "exception", "process 1 fails in step 5", "application-exception", "", (1,), early=True, loop=FLAX, args=("--steps=9000",), limit=150,
      edits=(("        notes, keys = together(tunes(step, me, FLAGS.batch))\n", "        tune, answer = tunes(step, me, FLAGS.batch)\n        if step == 5 and me == 1:\n            tune = tune[:, : LENGTH - 1]\n        assert tune.shape[1] == LENGTH, f\"tune of {tune.shape[1]} notes in step {step}\"\n        notes, keys = together((tune, answer))\n"),))
hung("flax", "main-checks", "process 0 alone runs the compiled evaluation (step 6)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), early=True, loop=FLAX, args=("--log_every=2",), ready=r"step=4 loss", extra="spy2",
     edits=(("        if step % FLAGS.eval_every == 0:\n", "        if step == 6 and me == 0:\n            logging.info(\"first look: %.3f\", float(check(state, notes, keys)))\n        if step % FLAGS.eval_every == 0:\n"),))
fault("flax", "barrier-names", "the barriers are named by each process's own folder (step 8)", "op-mismatch", "application-exception collective-desync", (), early=True, ranks_also=((0,), (1,), (0, 1)), category="crash", loop=FLAX.replace("--process_id=$r", "--process_id=$r --workdir=work-$r"), args=("--eval_every=8",), limit=120,
      edits=(("sync_global_devices(f\"saved {step}\")", "sync_global_devices(f\"saved {workdir} {step}\")"),))
fault("flax", "two-ones", "both processes are started as process 1, so that nobody coordinates", "rank-env-misconfigured", "missing-rank network-unreachable application-exception", (), early=True, ranks_also=((0,),), loop=FLAX.replace("--process_id=$r", "--process_id=1"), args=("--init_timeout=40",), limit=110)
fault("flax", "one-process", "process 1 is never started", "missing-rank", "rank-env-misconfigured application-exception", (1,), early=True, loop=FLAX.replace("0 1;", "0;"), args=("--init_timeout=45",), limit=110)
fault("flax", "port", "process 1 is given another port", "rank-env-misconfigured", "missing-rank network-unreachable application-exception", (1,), early=True, loop=FLAX.replace("localhost:{port}", "localhost:$(({port} + r))"), args=("--init_timeout=40",), limit=110)
hung("flax", "steps", "process 1 is started for six steps only", "rank-exited-early", "uneven-inputs extra-collective skipped-collective op-mismatch collective-desync rank-env-misconfigured", (1,), early=True, loop=FLAX.replace("--process_id=$r", "--process_id=$r --steps=$((240 - 234 * r))"), ready=r"step=1 loss", extra="spy2")
fault("flax", "nan", "an absurd learning rate: NaN within a few steps, the training goes on", "nan-loss", "", (), early=True, loop=FLAX, args=("--lr=1e30", "--log_every=2", "--steps=120"))

# ----------------------------------------------------------------------------------------------------- CuPy, cupyx.distributed
KM = ("for r in 0 1; do\n  python -u {script} --rank $r --port {port} {args} > logs/rank$r.log 2>&1 &\ndone\nwait\n")
KM_LONG = ("--iterations", "90000")
JOINED, ITERATES = r"rank 0: pid \d+, joining", r"rank 0: iteration 1 "
fault("kmeans", "healthy", HEALTHY, "none", loop=KM)
fault("kmeans", "healthy-info", "NCCL's long log", "none", loop=KM, args=("--clusters", "384", "--report", "5"), extra="info")
hung("kmeans", "own-tolerance", "each rank stops by the change of its own inertia", "rank-exited-early", "skipped-collective uneven-inputs collective-desync", (), ranks_also=((0,), (1,)), loop=KM, args=("--tolerance", "0.002", "--report", "5", *KM_LONG), ready=ITERATES, extra="stacks",
     edits=(("        comm.all_reduce(inertia, inertia)\n", "        own = float(inertia[0]) / len(points)\n        comm.all_reduce(inertia, inertia)\n"), ("abs(before - value) < a.tolerance", "abs(before - own) < a.tolerance"), ("        before = value\n", "        before = own\n")))
hung("kmeans", "exception", "rank 0 fails in iteration 4 and then waits for its store's process, rank 1 waits in NCCL", "application-exception", "stuck-outside-collective", (0,), early=True, loop=KM, args=KM_LONG, ready=ITERATES,
     edits=(("        comm.all_reduce(total, total)\n", "        if iteration == 4 and a.rank == 0:\n            total = total + count\n        comm.all_reduce(total, total)\n"),), extra="spy2 ps")
hung("kmeans", "one-rank", "rank 1 is never started", "missing-rank", "rank-env-misconfigured", (1,), early=True, loop=KM.replace("0 1;", "0;"), ready=JOINED, extra="stacks")
hung("kmeans", "clusters", "rank 1 is started with fewer clusters (before the first iteration)", "shape-mismatch", "rank-env-misconfigured collective-desync silent-corruption", (1,), early=True, ranks_also=((), (0,)), loop=KM.replace("--rank $r", "--rank $r --clusters $((512 - 128 * r))"), args=KM_LONG, ready=JOINED, extra="spy2", limit=120)
hung("kmeans", "double", "rank 1 has its centres in double precision (before the first iteration)", "dtype-mismatch", "shape-mismatch collective-desync silent-corruption", (1,), early=True, ranks_also=((), (0,)), loop=KM, args=KM_LONG, ready=JOINED, extra="info stacks", limit=120,
     edits=(("    centres = points.x[:a.clusters].copy()\n", "    centres = points.x[:a.clusters].astype(cp.float64 if a.rank else cp.float32)\n"),))
hung("kmeans", "order", "rank 1 reduces the counts before the sums (first iteration)", "collective-order-mismatch", "shape-mismatch collective-desync op-mismatch silent-corruption", (), early=True, ranks_also=((0,), (1,)), loop=KM, args=KM_LONG, ready=JOINED, extra="spy2", limit=120,
     edits=(("        comm.all_reduce(total, total)\n        comm.all_reduce(count, count)\n", "        for part in sorted((total, count), key=lambda part: part.size * (1 - 2 * a.rank), reverse=True):\n            comm.all_reduce(part, part)\n"),))
hung("kmeans", "sigkill", "kill -9 of rank 1 in the first iterations; rank 0 waits for ever", "process-killed", "peer-process-died", (1,), early=True, loop=KM, args=KM_LONG, act=(1, "SIGKILL"), ready=ITERATES, extra="ps")
hung("kmeans", "endless-kernel", "a kernel of rank 1 waits for a flag that nobody sets (iteration 6)", "gpu-kernel-stuck", "stuck-outside-collective", (1,), early=True, loop=KM, args=KM_LONG, ready=ITERATES, extra="spy2 smi",
     edits=(("def say(a, text):\n", "WAIT = cp.RawKernel(r'extern \"C\" __global__ void wait_for(volatile int* flag) { while (*flag == 0) { } }', \"wait_for\")\n\n\ndef say(a, text):\n"),
            ("        comm.all_reduce(total, total)\n", "        if iteration == 6 and a.rank == 1:\n            WAIT((1,), (1,), (cp.zeros(1, cp.int32),))\n        comm.all_reduce(total, total)\n")))

# ---------------------------------------------------------------------------------------------------------- torch-geometric
MOL_WAIT = ("--timeout", "30")
fault("molecules", "healthy", HEALTHY, "none")
fault("molecules", "healthy-reading", "all ranks read the whole data set once before the first step, and more slowly later", "none", args=("--steps", "150",),
      edits=(("        epoch = 0\n        while", "        smallest = min(train[i].y.item() for i in range(len(train)))\n        self.say(f\"read {len(train)} molecules, lowest energy {smallest:.3f}\")\n        epoch = 0\n        while"),
             ("        near = torch.cdist(place, place)\n", "        near = torch.cdist(place, place)\n        time.sleep(0.0008)\n")))
fault("molecules", "restarts", "rank 0 fails in step 75; each restart goes on from step 70 and fails the same way", "application-exception", "", (0,), restarts=2, args=("--timeout", "40"),
      edits=(("                self.step += 1\n", "                self.step += 1\n                if self.step == 75 and self.rank == 0:\n                    raise RuntimeError(f\"step {self.step}: energy of a molecule is not physical ({batch.y.min().item():.2f})\")\n"),))
fault("molecules", "skipped-nan", "a rank skips its batch when the loss is NaN (step 6), which shows at the check in step 8", "skipped-collective", DESYNC + " uneven-inputs shape-mismatch nan-loss", (1,), early=True, args=(*MOL_WAIT, "--check", "8"), extra="fr",
      edits=(("                self.optimizer.zero_grad(set_to_none=True)\n", "                if torch.isnan(loss):\n                    continue\n                self.optimizer.zero_grad(set_to_none=True)\n"), ("        return Data(", "        if i == 3836:\n            energy = energy.log() - energy.log() if energy < 0 else energy * float(\"nan\")\n        return Data(")))
fault("molecules", "sigsegv", "SIGSEGV of rank 0 after the first step", "process-crashed", "process-killed peer-process-died", (0,), early=True, args=("--steps", "90000"), act=(0, "SIGSEGV"), ready=r"step 1 epoch")
hung("molecules", "worker-lock", "a data-loader worker of rank 0 waits for a lock (step 8)", "stuck-outside-collective", "slow-rank-stall data-loading-bound", (0,), early=True, args=("--report", "2"), ready=r"step 2 epoch", extra="spy2",
     edits=(("import os\nimport time\n", "import os\nimport threading\nimport time\n"), ("KINDS = 12\n", "KINDS = 12\nLIBRARY = threading.Lock()\nLIBRARY.acquire()\n"), ("        return Data(", "        if i == 2151:  # not in the table, ask the library\n            with LIBRARY:\n                energy = energy + 0.1\n        return Data(")))
fault("molecules", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, port_taken=True, limit=90)
fault("molecules", "sigterm-launcher", "SIGTERM of the launcher in the first steps", "stopped-from-outside", "process-killed", (), early=True, args=("--steps", "90000"), act=("launcher", "SIGTERM"), ready=r"step 10 epoch")

FAULTS = [replace(one, limit=120) if one.limit == 150 and not one.restarts and one.job != "flax" else one for one in F]
