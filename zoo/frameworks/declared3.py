"""A third set of jobs and faults, with separate programs. The same plain data as declared.py."""

from dataclasses import replace

from declared import EXTRA_CALL, UNEVEN, Fault, Job

F = []
HEALTHY = "nothing is wrong"
C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{port}", "--rdzv-id=nightly")


def fault(job, name, says, cause, also="", ranks=(), extra="", **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **more))


STALE = ("with the c10d rendezvous, torchrun of torch 2.11 gives every attempt the same store without a prefix, so that the restarted ranks read the "
         "addresses of the dead ones")

JOBS = [
    Job("cls", "finetune_cls.py", "finetune.py", "reviews", "torchrun", r"\[finetune\] 25/", packages=("transformers", "torch"),
        args=("--output_dir", "out", "--per_device_train_batch_size", "16", "--max_steps", "150", "--eval_strategy", "steps", "--eval_steps", "50",
              "--save_steps", "50", "--load_best_model_at_end", "true", "--metric_for_best_model", "accuracy", "--report_to", "none",
              "--logging_steps", "25", "--disable_tqdm", "true", "--bf16", "true", "--save_total_limit", "2")),
    Job("seg", "segment_lit.py", "segment.py", "tiles", "python", r"\[0:50\] loss", packages=("lightning", "torch")),
    Job("denoise", "denoise_acc.py", "train_denoiser.py", "denoise", "accelerate", r"update 10 loss", packages=("accelerate", "torch")),
    Job("dslm", "lm_zero.py", "train_lm.py", "lm", "deepspeed", r"iter 20/", packages=("deepspeed", "torch")),
    Job("mctp", "mcore_mlp.py", "pretrain_mixer.py", "mixer", "torchrun", r"\[iter +20\]", packages=("megatron-core", "torch"),
        env=(("CUDA_DEVICE_MAX_CONNECTIONS", "1"),)),
    Job("fsdp1", "fsdp_wav.py", "listen.py", "audio", "torchrun", r"step 20 of", packages=("torch",), flags=("--master-port={port}", "--tee", "3")),
    Job("dcp", "dcp_async.py", "surrogate.py", "fields", "torchrun", r"40  mse", flags=C10D),
    Job("pp", "pp_1f1b.py", "stages.py", "pp", "torchrun", r"it 20 \|"),
    Job("dtgen", "dt_generate.py", "complete.py", "completion", "torchrun", r"batch 3:"),
    Job("jaxsm", "jax_shardmap.py", "classify.py", "signals", "loop", r"epoch 0 step 40 ", packages=("jax",)),
    Job("cupyring", "cupy_power.py", "power.py", "eigen", "loop", r"rank 0 iteration 100", packages=("cupy",)),
    Job("mpiheat", "mpi_heat.py", "heat.py", "heat", "mpirun", r"   400 change", packages=("mpi4py", "cupy")),
    Job("dpo", "dpo.py", "prefer.py", "prefs", "torchrun", r"margin at 10", packages=("trl", "transformers", "torch")),
    Job("recsys", "recsys.py", "clicks.py", "ads", "torchrun", r"\[0\] it 50 ", flags=C10D),
    Job("moe", "moe.py", "train_moe.py", "experts", "torchrun", r"moe iteration 25:"),
    Job("gan", "gan.py", "gan.py", "digits", "loop", r"round 40 critic"),
    Job("actors", "actors.py", "rl.py", "control", "torchrun", r"learner: update 20 "),
    Job("chat", "chat_server.py", "server.py", "assistant", "torchrun", r"request 20:"),
]

# ------------------------------------------------------------------------------------------- Transformers Trainer, a classifier
HF_SHORT = ("--ddp_timeout", "30")
fault("cls", "healthy", HEALTHY, "none")
fault("cls", "healthy-compile", "torch.compile, evaluation and checkpoints", "none", args=("--torch_compile", "true", "--max_steps", "100"), extra="warn")
fault("cls", "local-stop", "a callback stops the training on the loss of its own rank", "skipped-collective",
      "rank-exited-early uneven-inputs extra-collective collective-desync op-mismatch shape-mismatch", (1,),
      edits=(("        loss = outputs.loss\n", "        loss = outputs.loss\n        self.recent = 0.9 * getattr(self, \"recent\", 1.6) + 0.1 * loss.item()\n"),
             ("class ReviewTrainer(Trainer)", "class StopWhenFlat(TrainerCallback):\n    def __init__(self):\n        self.trainer = None\n\n    def on_step_end(self, args, state, control, **kwargs):\n        if state.global_step > 60 and self.trainer.recent < (1.7 if args.local_process_index else 0):\n            control.should_training_stop = True\n\n\nclass ReviewTrainer(Trainer)"),
             ("    trainer.train()\n", "    stop = StopWhenFlat()\n    stop.trainer = trainer\n    trainer.add_callback(stop)\n    trainer.train()\n")),
      args=(*HF_SHORT, "--max_steps", "600"), extra="fr")
fault("cls", "rank0-predict", "a callback predicts on the main process only; the user looks twice", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("    trainer.train()\n", "    report = ErrorReport()\n    report.trainer, report.some = trainer, Reviews(64, data.length, 9)\n    trainer.add_callback(report)\n    trainer.train()\n"),
             ("class ReviewTrainer(Trainer)", "class ErrorReport(TrainerCallback):\n    def on_step_end(self, args, state, control, **kwargs):\n        if state.global_step == 70 and state.is_world_process_zero:\n            output = self.trainer.predict(self.some)\n            print(\"confusions\", int((output.predictions.argmax(-1) != output.label_ids).sum()), flush=True)\n\n\nclass ReviewTrainer(Trainer)")),
      args=("--max_steps", "600"), end="silence", extra="spy2 smi")
fault("cls", "report-exception", "rank 0 cannot write its report: an integer of NumPy is not JSON", "application-exception", "", (0,),
      edits=(("import os\n", "import json\nimport os\n"),
             ("    guess = prediction.predictions.argmax(-1)\n", "    guess = prediction.predictions.argmax(-1)\n    if int(os.environ[\"RANK\"]) == 0:\n        with open(\"errors.json\", \"w\") as file:\n            json.dump({\"wrong\": (guess != prediction.label_ids).sum()}, file)\n")),
      args=("--ddp_timeout", "40"))

# ------------------------------------------------------------------------------------------------- Lightning, a data module
PL_SHORT = ("--pg_timeout", "30")
fault("seg", "healthy", HEALTHY, "none")
fault("seg", "rank0-gather", "all_gather of the module on the global zero only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("        every = self.all_gather(mean)\n", "        every = self.all_gather(mean) if self.trainer.is_global_zero and not self.trainer.sanity_checking else mean[None]\n"),),
      args=PL_SHORT, extra="fr")
fault("seg", "no-metric", "the checkpoint callback monitors a metric that is never logged", "application-exception", "", (), ranks_also=((0,), (1,)),
      edits=(("monitor=\"loss/val\"", "monitor=\"loss/valid\""),))
fault("seg", "worker-killed", "kill -9 of a data-loader worker of rank 1", "process-killed", "application-exception oom-killed", (1,),
      args=("--max_epochs", "60"), act=("worker 1", "SIGKILL"))
fault("seg", "sigstop", "SIGSTOP of rank 1; the user looks", "process-stopped", "stuck-outside-collective", (1,), args=("--max_epochs", "60"),
      act=(1, "SIGSTOP"), end="silence", extra="ps stacks")
fault("seg", "slow-figures", "rank 0 renders figures for longer than the timeout", "slow-rank-stall", "stuck-outside-collective timeout-too-short", (0,),
      edits=(("        mean = torch.stack(self.seen).mean()\n", "        mean = torch.stack(self.seen).mean()\n        if self.global_rank == 0 and self.current_epoch == 1:\n            render(self.trainer.val_dataloaders.dataset)\n"),
             ("class TilesModule(", "def render(tiles, shades=\" .:-=+*#%@\"):\n    text = []\n    until = time.time() + 70\n    for tile, mask in tiles:\n        for row in tile[0].tolist() * 40:\n            text.append(\"\".join(shades[min(9, max(0, int(5 * v)))] for v in row))\n        if time.time() > until:\n            break\n    open(\"figures.txt\", \"w\").write(\"\\n\".join(text))\n\n\nclass TilesModule(")),
      args=("--pg_timeout", "28"), extra="stacks")
fault("seg", "sigint", "Ctrl-C for the main process", "stopped-from-outside", "process-killed", (), args=("--max_epochs", "60"), act=("launcher", "SIGINT"))

# ------------------------------------------------------------------------------------------------- accelerate, with a tracker
ACC_SHORT = ("--ddp_timeout", "30")
fault("denoise", "healthy", HEALTHY, "none", extra="info")
fault("denoise", "rank0-validate", "validation, which reduces, on the main process only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("            if update % opt.validate_every == 0:\n", "            if update % opt.validate_every == 0 and acc.is_main_process:\n"),), args=ACC_SHORT)
fault("denoise", "skip-nan", "a rank skips its batch when the loss is NaN", "skipped-collective",
      "collective-desync op-mismatch extra-collective uneven-inputs shape-mismatch collective-order-mismatch nan-loss", (0,),
      edits=(("                loss = diffusion_loss(net, batch)\n", "                loss = diffusion_loss(net, batch)\n                if torch.isnan(loss):\n                    print(f\"rank {acc.process_index}: NaN in micro batch {micro}, skipping it\", flush=True)\n                    continue\n"),
             ("        return {\"latent\": torch.randn(8, 16, 16, generator=g), \"t\"", "        scale = 0.0 if i == 777 else 1.0\n        return {\"latent\": torch.randn(8, 16, 16, generator=g) * scale / scale if scale else torch.full((8, 16, 16), float(\"nan\")), \"t\"")),
      args=(*ACC_SHORT, "--max_train_steps", "400", "--grad_accum", "1", "--images", "3000"), extra="fr")
fault("denoise", "tracker-hangs", "the tracker of the main process waits for a server's answer; the user looks twice", "stuck-outside-collective", "slow-rank-stall", (0,),
      edits=(("        self.file.write(json.dumps({\"step\": step, **values}) + \"\\n\")\n", "        self.file.write(json.dumps({\"step\": step, **values}) + \"\\n\")\n        if step >= 30:\n            self.push(values)\n"),
             ("    @property\n    def tracker(self):\n", "    def push(self, values):\n        with socket.create_connection((\"127.0.0.1\", int(os.environ[\"STORE_PORT\"]))) as link:\n            link.sendall(json.dumps(values).encode())\n            return link.recv(2)\n\n    @property\n    def tracker(self):\n"),
             ("import os\n", "import os\nimport socket\n")),
      end="silence", extra="spy2")
fault("denoise", "shards", "every rank has its own files; rank 1 has fewer", "uneven-inputs", UNEVEN, (1,),
      edits=(("    train = DataLoader(Latents(opt.images), 8,", "    own = DataLoader(Latents(opt.images - 40 * acc.process_index, opt.images * acc.process_index), 8,"),
             ("    net, optim, train, val, sched = acc.prepare(net, optim, train, val, sched)\n", "    net, optim, val, sched = acc.prepare(net, optim, val, sched)\n    train = own\n"),
             ("                loss = diffusion_loss(net, batch)\n", "                batch = {k: v.to(acc.device) for k, v in batch.items()}\n                loss = diffusion_loss(net, batch)\n"),
             ("            if update >= opt.max_train_steps:\n                break\n", "            if update >= opt.max_train_steps:\n                break\n        acc.print(f\"end of the shard after {micro} micro batches\", flush=True)\n        acc.wait_for_everyone()\n")),
      args=(*ACC_SHORT, "--images", "640", "--max_train_steps", "300"))

# -------------------------------------------------------------------------------------------------------------- DeepSpeed
fault("dslm", "healthy-fp16", "fp16", "none", args=("--fp16",))
fault("dslm", "zero3-attention", "ZeRO-3 with nn.MultiheadAttention, whose projection is used outside its own module: the parameter is not gathered", "application-exception",
      "framework-bug library-mismatch", (), ranks_also=((0,), (1,)), args=("--zero", "3", "--total_steps", "80"), extra="warn")
fault("dslm", "rank0-weights", "the 16-bit weights are gathered on rank 0 only, under ZeRO-3", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("            engine.save_checkpoint(opts.checkpoints, client_state={\"iteration\": n})\n", "            if rank == 0:\n                engine.save_16bit_model(opts.checkpoints, f\"weights-{n}.bin\")\n"),),
      args=("--zero", "3", "--comm_timeout", "30", "--save_interval", "40", "--total_steps", "400"), extra="fr")
fault("dslm", "loss-scale", "fp16 with an absurd learning rate: the loss scale falls to its minimum", "nan-loss", "application-exception", (), category="crash", ranks_also=((0,), (1,)),
      edits=(("{\"warmup_num_steps\": 20}", "{\"warmup_num_steps\": 20, \"warmup_max_lr\": 200.0}"),), args=("--fp16", "--comm_timeout", "60", "--total_steps", "400"))
fault("dslm", "sigsegv", "SIGSEGV of rank 0", "process-crashed", "peer-process-died process-killed", (0,), args=("--total_steps", "8000"), act=(0, "SIGSEGV"), extra="warn")
fault("dslm", "healthy-long", "ZeRO-1; the log was copied while the job ran", "none", args=("--total_steps", "695", "--comm_timeout", "40", "--save_interval", "2000"))

# ------------------------------------------------------------------------------------------------- Megatron-Core's layers
MC_SHORT = ("--distributed-timeout-seconds", "30")
fault("mctp", "healthy", HEALTHY, "none", extra="info")
fault("mctp", "rank0-norm", "the norm of the gradients, a reduction, for rank 0's log only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("        norm = global_grad_norm(model)\n", ""), ("            if rank == 0:\n                print(f\"[iter", "            if rank == 0:\n                norm = global_grad_norm(model)\n                print(f\"[iter")),
      args=MC_SHORT, extra="fr")
fault("mctp", "micro-batch", "rank 1 runs with another micro-batch size", "shape-mismatch", "collective-desync rank-env-misconfigured op-mismatch", (), ranks_also=((0,), (1,)),
      edits=(("    tokens, labels = batch_for(iteration, args)\n", "    if iteration == 30:\n            args.micro_batch_size = 8 if rank == 0 else 12\n        tokens, labels = batch_for(iteration, args)\n"),),
      args=MC_SHORT, extra="fr")
fault("mctp", "sigstop", "SIGSTOP of rank 0; the user looks twice", "process-stopped", "stuck-outside-collective", (0,), args=("--train-iters", "60000"), act=(0, "SIGSTOP"),
      end="silence", extra="spy2 ps")
fault("mctp", "disk-full", "no room for the checkpoint", "storage-failure", "application-exception", (), ranks_also=((0,), (1,)), tmpfs=(("checkpoints", "12m"),),
      args=("--distributed-timeout-seconds", "40"))

# -------------------------------------------------------------------------------------------------------------------- FSDP
fault("fsdp1", "healthy", HEALTHY, "none")
fault("fsdp1", "rank0-state-dict", "the full state dict on rank 0 only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("                if step % self.conf[\"ckpt\"] == 0:\n", "                if step % self.conf[\"ckpt\"] == 0 and self.rank == 0:\n"),), args=("timeout_s=30", "steps=400"), extra="fr")
fault("fsdp1", "rank0-accuracy", "the accuracy on rank 0 only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("                    value = self.accuracy()\n", "                    value = self.accuracy() if self.rank == 0 else 0\n"),), args=("timeout_s=30", "steps=400"))
fault("fsdp1", "rank0-summon", "summon_full_params on rank 0 only; the user looks twice", "extra-collective", EXTRA_CALL + " shape-mismatch undecided", (0,),
      edits=(("    @torch.no_grad()\n", "    def weight_norm(self):\n        with FSDP.summon_full_params(self.model, writeback=False):\n            return sum(p.norm().item() for p in self.model.parameters())\n\n    @torch.no_grad()\n"),
             ("                if step % self.conf[\"eval\"] == 0:\n", "                if step == 50 and self.rank == 0:\n                    self.say(f\"weight norm {self.weight_norm():.3f}\")\n                if step % self.conf[\"eval\"] == 0:\n")),
      args=("steps=400",), end="silence", extra="spy2 ps")
fault("fsdp1", "bad-clip", "a clip of rank 1 is shorter than the others", "application-exception", "", (1,),
      edits=(("        return wave, pitch\n", "        return (wave[:3000] if i % 800 == 333 and os.environ[\"RANK\"] == \"1\" else wave), pitch\n"),), args=("timeout_s=40", "steps=4000"))
fault("fsdp1", "slow-write", "rank 0 writes its checkpoint more slowly than the timeout allows", "slow-rank-stall",
      "stuck-outside-collective timeout-too-short storage-failure", (0,),
      edits=(("            torch.save(weights, f\"{self.conf['out']}/step{step}.pt\")\n", "            upload(weights, f\"{self.conf['out']}/step{step}.pt\")\n"),
             ("class Job:\n", "def upload(weights, path, chunk=1 << 18):\n    data = io.BytesIO()\n    torch.save(weights, data)\n    with open(path, \"wb\") as file:\n        for at in range(0, data.tell(), chunk):\n            file.write(data.getbuffer()[at:at + chunk])\n            os.fsync(file.fileno())\n            time.sleep(0.6)\n\n\nclass Job:\n"),
             ("import functools\n", "import functools\nimport io\n")),
      args=("timeout_s=28", "steps=400"), extra="stacks")
fault("fsdp1", "sigterm-rank", "SIGTERM of rank 1 alone", "process-killed", "peer-process-died stopped-from-outside", (1,), args=("steps=9000",), act=(1, "SIGTERM"))

# ------------------------------------------------------------------------------------------- FSDP2, checkpoints in the background
fault("dcp", "healthy", HEALTHY, "none", extra="warn")
fault("dcp", "killed", "kill -9 of rank 1; the restarted ranks never come up", "process-killed", "framework-bug peer-process-died", (1,), ranks_also=((),), why=STALE,
      args=("--steps", "500"), restarts=2, act=(1, "SIGKILL"), ready=r"160  checkpoint", limit=150)
fault("dcp", "restart-stale", "rank 0 fails at a step; the restarts fail otherwise and then hang", "application-exception", "framework-bug", (0,), why=STALE,
      edits=(("    x = torch.rand(batch, 64, generator=g)\n", "    x = torch.rand(batch, 64, generator=g)\n    if step == 130 and rank == 0:\n        raise ValueError(f\"simulation {step} did not converge (residual 3.1e+02)\")\n"),),
      restarts=2, args=("--pg-timeout", "40"), limit=150)
fault("dcp", "rank0-save", "the checkpoint, a collective over Gloo, on rank 0 only", "extra-collective", EXTRA_CALL + " stuck-outside-collective", (0,),
      edits=(("        if state.step % a.every == 0:\n", "        if state.step % a.every == 0 and rank == 0:\n"),), args=("--pg-timeout", "30", "--steps", "2000"), extra="stacks")
fault("dcp", "disk-full", "no room for the checkpoint", "storage-failure", "application-exception", (), ranks_also=((0,), (1,)), tmpfs=(("dcp", "96m"),), args=("--pg-timeout", "40"))
fault("dcp", "pipe", "rank 1 writes its metrics to a pipe that nobody reads; the user looks twice", "stuck-outside-collective", "slow-rank-stall", (1,),
      edits=(("        if state.step % 20 == 0:\n", "        if state.step == 90 and rank == 1:\n            os.mkfifo(\"metrics\")\n            with open(\"metrics\", \"w\") as sink:\n                sink.write(f\"{loss.item()}\\n\")\n        if state.step % 20 == 0:\n"),),
      end="silence", extra="spy2 ps")
fault("dcp", "rdzv-port", "something else listens where the rendezvous should be", "port-in-use", "launcher-failure application-exception missing-rank", (), port_taken=True, limit=110)

# --------------------------------------------------------------------------------------------------------------- pipeline
PP_SHORT = (("PG_TIMEOUT_S", "30"),)
fault("pp", "healthy", HEALTHY, "none", extra="info")
fault("pp", "continue", "the last stage leaves out the rest of a step on its own loss, the broadcast too", "skipped-collective",
      "collective-desync op-mismatch unmatched-p2p extra-collective", (1,),
      edits=(("        nn.utils.clip_grad_norm_(module", "        if loss is not None and loss.item() > 3.0 and step > 40:\n            optimizer.zero_grad()\n            continue\n        nn.utils.clip_grad_norm_(module"),),
      env=PP_SHORT, extra="fr")
fault("pp", "unread-send", "the last stage sends its loss, the first never receives it; the user looks twice", "unmatched-p2p",
      "extra-collective collective-desync op-mismatch stuck-outside-collective undecided", (1,), ranks_also=((0,), ()),
      edits=(("        if rank == 1 and step % log_every == 0:\n", "        if rank == 1 and step == 45:\n            dist.send(loss.detach(), dst=0)\n            torch.cuda.synchronize()\n        if rank == 1 and step % log_every == 0:\n"),),
      end="silence", extra="spy2")
fault("pp", "exception", "the first stage fails on a batch", "application-exception", "", (0,),
      edits=(("    ids[:, 1::2] = ids[:, :-1:2]\n", "    ids[:, 1::2] = ids[:, :-1:2]\n    if step == 57 and dist.get_rank() == 0:\n        ids = ids[torch.arange(BATCH + 1)]\n"),), env=(("PG_TIMEOUT_S", "40"),))
fault("pp", "sigkill", "kill -9 of the last stage", "process-killed", "peer-process-died", (1,), args=("40000",), act=(1, "SIGKILL"))

# -------------------------------------------------------------------------------------------- tensor-parallel generation, DTensor
TP_SHORT = ("--nccl-timeout", "30")
fault("dtgen", "healthy", HEALTHY, "none")
fault("dtgen", "time-limit", "each rank ends a completion by its own clock", "collective-desync", "skipped-collective rank-exited-early uneven-inputs extra-collective op-mismatch shape-mismatch silent-corruption", (),
      ranks_also=((0,), (1,)), edits=(("        if finished.all():\n", "        if finished.all() or time.monotonic() - began > 0.12 + 0.004 * dist.get_rank():\n"),),
      args=(*TP_SHORT, "--batches", "3000", "--new-tokens", "400"), extra="fr")
fault("dtgen", "seeds", "each rank has its own seed; the user looks twice", "collective-desync",
      "skipped-collective shape-mismatch rank-exited-early uneven-inputs extra-collective op-mismatch silent-corruption undecided", (), ranks_also=((0,), (1,)),
      edits=(("generator.manual_seed(42)", "generator.manual_seed(42 + rank)"),), args=("--batches", "3000"), end="silence", extra="spy2")
fault("dtgen", "sigstop", "SIGSTOP of rank 1, the watchdog of the other fires", "process-stopped", "stuck-outside-collective peer-process-died", (1,),
      args=(*TP_SHORT, "--batches", "30000"), act=(1, "SIGSTOP"), extra="fr ps")
fault("dtgen", "no-folder", "rank 0 writes into a folder that does not exist", "application-exception", "storage-failure", (0,),
      edits=(("        if rank == 0:\n            print(f\"batch", "        if rank == 0:\n            if batch == 8:\n                with open(\"answers/part-1.txt\", \"w\") as file:\n                    file.write(str(out.tolist()))\n            print(f\"batch"),),
      args=("--nccl-timeout", "40", "--batches", "3000"))
fault("dtgen", "prompts", "the ranks read other prompts, of other lengths", "shape-mismatch", "collective-desync op-mismatch silent-corruption", (), ranks_also=((0,), (1,)),
      edits=(("text = torch.Generator().manual_seed(1)", "text = torch.Generator().manual_seed(1 + rank)"),), args=(*TP_SHORT, "--batches", "3000"), extra="fr")

# -------------------------------------------------------------------------------------------------------------------- JAX
JAX = ("export HOSTS=2\nfor r in 0 1; do\n  CUDA_VISIBLE_DEVICES=$r python -u {script} --rank $r --hosts $HOSTS --address localhost:{port} {args} > logs/host-$r.log 2>&1 &\ndone\nwait\n")
fault("jaxsm", "healthy", HEALTHY, "none", loop=JAX)
fault("jaxsm", "healthy-verbose", "all of XLA's and NCCL's messages", "none", loop=JAX, args=("--epochs", "2"), env=(("TF_CPP_MIN_LOG_LEVEL", "0"), ("NCCL_DEBUG", "INFO")))
fault("jaxsm", "host0-gather", "process_allgather on host 0 only; the user looks twice", "extra-collective", EXTRA_CALL + " stuck-outside-collective undecided", (0,), loop=JAX,
      edits=(("        accuracy = multihost_utils.process_allgather(right).mean()\n        if me == 0:\n", "        if me == 0:\n            accuracy = multihost_utils.process_allgather(right).mean()\n"),),
      end="silence", silence=30, extra="spy2")
fault("jaxsm", "barrier-names", "the barriers of the hosts have different names", "op-mismatch", "application-exception collective-desync", (), category="crash", ranks_also=((0,), (1,)), loop=JAX,
      edits=(("sync_global_devices(f\"epoch {epoch}\")", "sync_global_devices(f\"epoch {epoch} {loss.addressable_data(0)} {time.time() - began:.6f}\")"),), limit=90)
fault("jaxsm", "sigabrt", "SIGABRT of host 1", "process-crashed", "process-killed peer-process-died", (1,), loop=JAX, args=("--epochs", "4000"), act=(1, "SIGABRT"), limit=110)
fault("jaxsm", "host0-import", "host 0 fails before it joins; the other waits in vain", "application-exception", "missing-rank", (0,), loop=JAX,
      edits=(("    jax.distributed.initialize(", "    if opts.rank == 0:\n        with open(\"norms.pkl\", \"rb\") as file:\n            opts.norms = pickle.load(file)\n    jax.distributed.initialize("),),
      args=("--join-timeout", "25"), limit=90)
fault("jaxsm", "lock", "host 1 waits for a lock file; the user looks twice", "stuck-outside-collective", "slow-rank-stall", (1,), loop=JAX,
      edits=(("    rng = np.random.default_rng([step, rank])\n", "    while step == 130 and rank == 1 and not os.path.exists(\"cache/.ready\"):\n        time.sleep(0.2)\n    rng = np.random.default_rng([step, rank])\n"),),
      end="silence", silence=25, extra="spy2 ps")

# ------------------------------------------------------------------------------------------------------------- CuPy and NCCL
CUPY = ("for r in 0 1; do\n  RANK=$r python -u {script} {args} > logs/rank-$r.log 2>&1 &\ndone\nwait\n")
fault("cupyring", "healthy", HEALTHY, "none", loop=CUPY, extra="info")
fault("cupyring", "ring-skipped", "rank 0 leaves out the exchange once it is precise enough", "unmatched-p2p", "skipped-collective collective-desync op-mismatch undecided", (0,), loop=CUPY,
      ranks_also=((1,), ()), edits=(("        if k % 10 == 0:\n", "        if k % 10 == 0 and not (a.rank == 0 and k > 250):\n"),), args=("--iterations", "2000"), end="silence", extra="spy2 info")
fault("cupyring", "no-rank0", "rank 0 is never started", "missing-rank", "rank-env-misconfigured application-exception", (0,), loop=CUPY.replace("0 1;", "1;"), args=("--patience", "15"))
fault("cupyring", "sizes", "rank 1 is started with another matrix size", "shape-mismatch", "rank-env-misconfigured collective-desync undecided", (1,), ranks_also=((), (0,)),
      loop=CUPY.replace("python -u {script}", "python -u {script} --n $((8192 - r * 4096))"), args=("--iterations", "2000"), end="silence", extra="smi spy")
fault("cupyring", "bad-kernel", "a kernel of rank 1 writes out of bounds; rank 0 waits for ever", "illegal-memory-access", "application-exception", (1,), loop=CUPY,
      edits=(("def main():\n", "RELAX = cupy.RawKernel(r'extern \"C\" __global__ void relax(float* p, long long n) { p[n + threadIdx.x] *= 0.5f; }', \"relax\")\n\n\ndef main():\n"),
             ("        part = block @ vector\n", "        part = block @ vector\n        if a.rank == 1 and k > 230:\n            RELAX((1,), (64,), (part, part.size << 24))\n")),
      args=("--iterations", "2000"), end="silence", extra="ps")
fault("cupyring", "sigstop", "SIGSTOP of rank 0", "process-stopped", "stuck-outside-collective", (0,), loop=CUPY, args=("--iterations", "900000"), act=(0, "SIGSTOP"), end="silence", extra="stacks ps")

# ------------------------------------------------------------------------------------------------------------------ mpi4py
fault("mpiheat", "healthy", HEALTHY, "none", args=("3000",))
fault("mpiheat", "exception", "rank 1 fails without MPI_Abort; the others wait for ever", "application-exception", "", (1,), args=("40000",),
      edits=(("    return cupy.full((n, n)", "    if rank == 1:\n        del table[\"source\"]\n    return cupy.full((n, n)"),), end="silence", silence=18, extra="spy ps", ready=r"", limit=70)
fault("mpiheat", "abort", "rank 1 calls MPI_Abort after an exception", "application-exception", "", (1,), args=("40000",),
      edits=(("    main()\n", "    try:\n        main()\n    except Exception as error:\n        print(f\"rank {world.Get_rank()}: {type(error).__name__}: {error}\", file=sys.stderr, flush=True)\n        world.Abort(3)\n"),
             ("        if it % 200 == 0:\n", "        if rank == 1 and it == 700:\n            field = field.reshape(n // 3, -1)\n        if it % 200 == 0:\n")))
fault("mpiheat", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=("900000",), act=(0, "SIGKILL"))
fault("mpiheat", "barrier", "a barrier of MPI on rank 0 only, the other is in NCCL; the user looks twice", "extra-collective", EXTRA_CALL + " stuck-outside-collective deadlock-cycle", (0,), args=("900000",),
      edits=(("        if it % 1000 == 0:\n            world.Barrier()\n", "        if it % 1000 == 0:\n            stream.synchronize()\n        if it % 1000 == 0 and rank == 0:\n            world.Barrier()\n"),), end="silence", extra="spy2")
fault("mpiheat", "exit-code", "rank 1 ends with code 2 and says little", "application-exception", "rank-exited-early peer-process-died", (1,), args=("900000",),
      edits=(("        if it % 200 == 0:\n", "        if rank == 1 and it == 900:\n            print(\"license check failed\", flush=True)\n            os._exit(2)\n        if it % 200 == 0:\n"),))

# -------------------------------------------------------------------------------------------------------------------- TRL
fault("dpo", "healthy", HEALTHY, "none")
fault("dpo", "accumulation", "the ranks accumulate over different numbers of micro batches", "collective-desync",
      "skipped-collective extra-collective op-mismatch collective-order-mismatch rank-env-misconfigured shape-mismatch uneven-inputs", (), ranks_also=((0,), (1,)),
      edits=(("gradient_accumulation_steps=2", "gradient_accumulation_steps=2 + 2 * int(os.environ[\"LOCAL_RANK\"])"),), env=(("DDP_TIMEOUT", "30"), ("MAX_STEPS", "200")), extra="fr")
fault("dpo", "nan", "an absurd learning rate: the loss becomes NaN and the training goes on", "nan-loss", "", (), edits=(("learning_rate=1e-4", "learning_rate=1e18"),))
fault("dpo", "no-rejected", "a row of rank 1 has no rejected answer", "application-exception", "", (1,),
      edits=(("    return Dataset.from_list(rows)\n", "    if seed == 0 and os.environ[\"RANK\"] == \"1\":\n        rows[200][\"rejected\"] = None\n    return Dataset.from_list(rows)\n"),), env=(("DDP_TIMEOUT", "40"),))

# ------------------------------------------------------------------------------------------- DDP, compiled, elastic, streaming
REC_SHORT = ("--comm-timeout", "30")
fault("recsys", "healthy", "compiled, mixed precision", "none", args=("--compile", "--amp"))
fault("recsys", "killed", "kill -9 of rank 0; the first restart fails, the second hangs", "process-killed", "framework-bug peer-process-died", (0,), ranks_also=((),), why=STALE, restarts=3, act=(0, "SIGKILL"), ready=r"snapshot written", limit=150)
fault("recsys", "restart-stale", "rank 1 fails on a row; the first restart fails otherwise, the second hangs", "application-exception", "framework-bug", (1,), why=STALE,
      edits=(("        dense = torch.rand(13, generator=g)\n", "        dense = torch.rand(13, generator=g)\n        if row == 5555 and self.rank == 1:\n            dense = torch.tensor([float(\"1,7\")] * 13)\n"),), restarts=2, args=("--comm-timeout", "40"), limit=150)
fault("recsys", "uneven", "rank 1's log of clicks is shorter", "uneven-inputs", UNEVEN, (1,), edits=(("days, rows_per_day):\n        self.rank, self.days, self.rows = rank, days, rows_per_day", "days, rows_per_day):\n        self.rank, self.days, self.rows = rank, days, rows_per_day - 1500 * rank"),),
      args=REC_SHORT, extra="fr")
fault("recsys", "slow-disk", "rank 1 reads its rows many times more slowly than rank 0; the job runs on", "straggler", "data-loading-bound load-imbalance", (1,), category="performance",
      edits=(("        return fields, dense, (fields[0]", "        if self.rank == 1:\n            time.sleep(0.0025)\n        return fields, dense, (fields[0]"),), args=("--loaders", "1", "--days", "1", "--rows", "19200"))
fault("recsys", "sockets", "NCCL may use neither P2P nor shared memory", "wrong-transport", "nccl-env-misconfigured slow-link bandwidth-below-expected", (), category="performance",
      env=(("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")), extra="info", args=("--days", "1"))
fault("recsys", "oom", "rank 0 builds a matrix that does not fit", "cuda-oom", "", (0,),
      edits=(("        if it % 100 == 0:\n", "        if it == 80 and rank == 0:\n            table = net.module.tables.weight.detach()\n            similar = (table.repeat(3, 1) @ table.T.repeat(1, 3)).topk(10).indices\n        if it % 100 == 0:\n"),), args=("--comm-timeout", "40"), extra="smi")
fault("recsys", "worker-killed", "kill -9 of a data-loader worker of rank 0", "process-killed", "application-exception oom-killed", (0,), args=("--days", "400", "--comm-timeout", "40"), act=("worker 0", "SIGKILL"))

# ------------------------------------------------------------------------------------------------------- mixture of experts
MOE_SHORT = ("--comm-timeout-s", "30")
fault("moe", "healthy", "the log was copied while the job ran", "none")
fault("moe", "capacity", "rank 1 alone cuts what it receives at a capacity: the sizes of the exchange disagree", "shape-mismatch", "unmatched-p2p collective-desync silent-corruption", (1,), ranks_also=((), (0,)),
      edits=(("        send, recv = counts.tolist(), incoming.tolist()\n", "        send, recv = counts.tolist(), incoming.tolist()\n        if CAPACITY:\n            recv = [min(n, CAPACITY) for n in recv]\n"),
             ("class Exchange(", "CAPACITY = 900 if os.environ.get(\"RANK\") == \"1\" else None\n\n\nclass Exchange(")), args=MOE_SHORT, extra="fr")
fault("moe", "order", "the gradients are reduced in the order of a set, which differs between ranks", "collective-order-mismatch", "shape-mismatch op-mismatch collective-desync", (), ranks_also=((0,), (1,)),
      edits=(("    for name, p in model.named_parameters():\n", "    shared = dict(model.named_parameters())\n    for name in set(shared):\n        p = shared[name]\n"),), args=MOE_SHORT, extra="fr")
fault("moe", "cycle", "the ranks wait for two groups in opposite orders", "deadlock-cycle", "collective-order-mismatch concurrent-communicators collective-desync", (), category="hang", ranks_also=((0,), (1,)),
      edits=(("            dist.reduce(both, dst=0)\n", "            if rank == 0:\n                dist.all_reduce(both)\n                both.cpu()\n                dist.barrier(group=experts)\n            else:\n                dist.barrier(group=experts)\n                dist.all_reduce(both)\n                both.cpu()\n"),
             ), args=MOE_SHORT, extra="fr")
fault("moe", "sigint", "Ctrl-C for the launcher", "stopped-from-outside", "process-killed", (), args=("--iters", "90000"), act=("launcher", "SIGINT"))

# ------------------------------------------------------------------------------------------------------------- GAN, shell loop
LOOP = ("for r in 0 1; do\n  RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port} python -u {script} {args} > logs/gan-$r.log 2>&1 &\ndone\nwait\n")
GAN_SHORT = (("TIMEOUT", "30"), ("ROUNDS", "20000"))
fault("gan", "healthy", HEALTHY, "none", loop=LOOP)
fault("gan", "critic-rests", "the critic rests on a rank where it is too good", "skipped-collective", "collective-desync collective-order-mismatch op-mismatch shape-mismatch extra-collective", (), ranks_also=((0,), (1,)),
      loop=LOOP, edits=(("        d_loss, accuracy = gan.train_critic(real)\n", "        if accuracy < 0.62 or n % 4 == 0:\n            d_loss, accuracy = gan.train_critic(real)\n"),), env=GAN_SHORT, extra="fr")
fault("gan", "order", "rank 1 trains the generator before the critic", "collective-order-mismatch", "shape-mismatch collective-desync op-mismatch", (), ranks_also=((1,), (0,)), loop=LOOP,
      edits=(("        d_loss, accuracy = gan.train_critic(real)\n        g_loss = gan.train_generator(128)\n", "        if RANK == 1:\n            g_loss = gan.train_generator(128)\n        d_loss, accuracy = gan.train_critic(real)\n        if RANK != 1:\n            g_loss = gan.train_generator(128)\n"),), env=GAN_SHORT, extra="info")
fault("gan", "wait-for-debugger", "rank 1 waits for a debugger to attach; the user looks twice", "stuck-outside-collective", "process-stopped", (1,), loop=LOOP,
      edits=(("def generator():\n", "def attach(port=0):\n    with socket.create_server((\"127.0.0.1\", port)) as server:\n        log(\"waiting for a debugger on port\", server.getsockname()[1])\n        return server.accept()\n\n\ndef generator():\n"),
             ("import os\n", "import os\nimport socket\n"), ("        g_loss = gan.train_generator(128)\n", "        g_loss = gan.train_generator(128)\n        if RANK == 1 and n == 90:\n            attach()\n")), end="silence", extra="spy2")
fault("gan", "old-port", "rank 1 is started with a port of yesterday", "rank-env-misconfigured", "missing-rank network-unreachable", (1,), loop=LOOP.replace("MASTER_PORT={port}", "MASTER_PORT=$(({port} + r))"), env=(("TIMEOUT", "25"),), limit=90)
fault("gan", "nan", "pictures of rank 1 contain Inf: the losses become NaN and the training goes on", "nan-loss", "", (), ranks_also=((1,),), loop=LOOP,
      edits=(("        real = digits(128, device)\n", "        real = digits(128, device)\n        if n > 130 and RANK == 1:\n            real[3, 5] = float(\"inf\")\n"),))
fault("gan", "rounds", "rank 1 is started with fewer rounds", "rank-exited-early", "uneven-inputs skipped-collective rank-env-misconfigured", (1,),
      loop=LOOP.replace("RANK=$r", "ROUNDS=$((500 - 70 * r)) RANK=$r"), env=(("TIMEOUT", "30"),))
fault("gan", "sigsegv", "rank 1 reads through a null pointer", "process-crashed", "peer-process-died", (1,), loop=LOOP,
      edits=(("import os\n", "import ctypes\nimport os\n"), ("        real = digits(128, device)\n", "        real = digits(128, device)\n        if n == 150 and RANK == 1:\n            ctypes.memset(8, 0, 16)\n")), env=GAN_SHORT, extra="info")

# --------------------------------------------------------------------------------------- actors and learners, four ranks
RL_SHORT = (("GROUP_TIMEOUT", "30"),)
fault("actors", "healthy", HEALTHY, "none", nproc=4)
fault("actors", "sigkill", "kill -9 of an actor", "process-killed", "peer-process-died", (3,), nproc=4, args=("90000",), act=(3, "SIGKILL"))
fault("actors", "exception", "an actor fails in its environment", "application-exception", "", (2,), nproc=4, args=("900",), env=(("GROUP_TIMEOUT", "40"),),
      edits=(("    states = torch.randn(n, 32, generator=g).to(device)\n", "    states = torch.randn(n, 32, generator=g).to(device)\n    if seed == 302:\n        states = states.reshape(-1, 30)\n"),))
fault("actors", "skip", "learner 1 leaves out a reduction", "skipped-collective", "collective-desync op-mismatch extra-collective shape-mismatch", (1,), nproc=4, args=("900",), env=RL_SHORT,
      edits=(("            mean = rewards.mean()\n            dist.all_reduce(mean, group=group)\n", "            mean = rewards.mean()\n            if rank == 0 or update < 60:\n                dist.all_reduce(mean, group=group)\n"),), extra="fr")
fault("actors", "sigstop", "SIGSTOP of actor 3; the user looks", "process-stopped", "stuck-outside-collective", (3,), nproc=4, args=("90000",), act=(3, "SIGSTOP"), end="silence", extra="stacks ps")
fault("actors", "lock", "actor 2 waits for a lock; the user looks twice", "stuck-outside-collective", "slow-rank-stall", (2,), nproc=4, args=("900",),
      edits=(("        stats = torch.stack(", "        if update == 50 and rank == 2:\n            held, wanted = threading.Lock(), threading.Lock()\n            wanted.acquire()\n            with held, wanted:\n                pass\n        stats = torch.stack("), ("import sys\n", "import sys\nimport threading\n")), end="silence", extra="spy2")

# ------------------------------------------------------------------------------------------------------------ serving loop
CHAT_SHORT = ("--nccl-timeout", "30")
fault("chat", "healthy", HEALTHY, "none")
fault("chat", "idle", "no request comes for longer than the timeout: the other rank waits in the broadcast", "timeout-too-short", "stuck-outside-collective slow-rank-stall", (0,), category="hang",
      edits=(("        time.sleep(pause)\n", "        time.sleep(pause if n < 60 else 600)\n"),), args=CHAT_SHORT, extra="stacks")
fault("chat", "exception", "rank 0 fails when it decodes the tokens", "application-exception", "", (0,),
      edits=(("                job[\"answer\"] = tokens\n", "                job[\"answer\"] = tokens if served < 48 else [VOCABULARY[t] for t in tokens]\n"),
             ("JOBS = queue.Queue()\n", "JOBS = queue.Queue()\nVOCABULARY = {i: f\"tok{i}\" for i in range(0, 2000, 2)}\n")), args=("--nccl-timeout", "40", "--self-test", "9000"))
fault("chat", "cache", "rank 0 answers a repeated prompt from its cache, the other rank computes", "skipped-collective", "collective-desync op-mismatch extra-collective shape-mismatch", (0,),
      edits=(("        ids = torch.tensor([request[\"prompt\"]], device=self.device)\n", "        key = tuple(request[\"prompt\"][:1])\n        if self.rank == 0 and key in self.cache:\n            return self.cache[key]\n        self.cache[key] = [0] * request[\"max_tokens\"]\n        ids = torch.tensor([request[\"prompt\"]], device=self.device)\n"),
             ("        self.rank = dist.get_rank()\n", "        self.rank = dist.get_rank()\n        self.cache = {}\n"), ("[(n * 37 + k) % 2000", "[(n % 70 * 37 + k) % 2000")),
      args=(*CHAT_SHORT, "--self-test", "9000"), extra="fr")
fault("chat", "sigterm-rank", "SIGTERM of rank 1 alone", "process-killed", "peer-process-died stopped-from-outside", (1,), args=("--self-test", "900000"), act=(1, "SIGTERM"), extra="warn")

FAULTS = [replace(one, limit=min(one.limit, 120)) if one.limit == 150 and not one.restarts else one for one in F]

# According to the recordings, these show no sign of the fault.
LEFT_OUT = {
    "moe/capacity": "the sizes differed and the exchange went through: wrong numbers, no trace",
    "dcp/rdzv-port": "the launcher waited and printed nothing",
    "dslm/rank0-weights": "ended earlier, as zero3-attention does",
}
