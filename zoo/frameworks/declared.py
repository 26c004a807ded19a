"""The jobs and the faults, one declaration each. Plain data.

A fault is planted by editing the job's program before it starts (`edits`: an exact text that occurs once, and its
replacement), by the way it is launched, or by an action on its processes (`act`). Neither command line nor output reveals
a planted fault.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Job:
    name: str
    program: str
    # The user's name for the program, and its folder.
    script: str
    project: str
    # torchrun, accelerate, python (starts its own ranks), deepspeed, loop (a shell loop), mpirun, binary (compiled, mpirun)
    launch: str
    # The output line after which the job is in full progress.
    ready: str
    args: tuple = ()
    env: tuple = ()
    packages: tuple = ("torch",)
    # torchrun: its flags instead of --master-port.
    flags: tuple = ()


JOBS = [
    Job("ddp", "ddp.py", "train.py", "imgcls", "torchrun", r"epoch 0 step 30/"),
    Job("ddp-loop", "ddp.py", "train.py", "imgcls", "loop", r"epoch 0 step 30/"),
    Job("hf", "hf_trainer.py", "run_clm.py", "clm", "torchrun", r"\[speed\] step 20 ", packages=("transformers", "torch")),
    Job("lightning", "lightning_fit.py", "fit.py", "spectra", "python", r"epoch 0 batch 40 ", packages=("lightning", "torch")),
    Job("accelerate", "accelerate_loop.py", "train_tagger.py", "tagger", "accelerate", r"epoch 0 step 20 ", packages=("accelerate", "torch")),
    Job("fsdp2", "fsdp2.py", "pretrain.py", "decoder", "torchrun", r"step 20/"),
    Job("tp", "tp_generate.py", "serve.py", "tpserve", "torchrun", r"request 2:"),
    Job("pipeline", "pipeline.py", "pipe.py", "stages", "torchrun", r"step 20/"),
    Job("jax", "jax_mp.py", "train_jax.py", "regress", "loop", r"step 40 ", packages=("jax",)),
    Job("cupy", "cupy_nccl.py", "fit_cupy.py", "lsq", "loop", r"step 50 ", packages=("cupy",)),
    Job("jacobi", "jacobi.cu", "jacobi", "jacobi", "binary", r"iteration 500 ", packages=()),
    Job("mpi-torch", "mpi_torch.py", "train_mpi.py", "autoenc", "mpirun", r"step 25:"),
    Job("deepspeed", "deepspeed_zero.py", "train_ds.py", "zero", "deepspeed", r"step 20 loss", packages=("deepspeed", "torch")),
    Job("megatron", "megatron_gpt.py", "pretrain_gpt.py", "mcore", "torchrun", r"iteration +20/", env=(("CUDA_DEVICE_MAX_CONNECTIONS", "1"),),
        packages=("megatron-core", "torch")),
    Job("trl", "trl_sft.py", "sft.py", "sft", "torchrun", r"'loss'.*", packages=("trl", "transformers", "torch")),
]


@dataclass(frozen=True)
class Fault:
    job: str
    name: str
    says: str
    cause: str
    also: tuple = ()
    ranks: tuple = ()
    ranks_also: tuple = ()
    category: str = ""
    edits: tuple = ()
    args: tuple = ()
    env: tuple = ()
    # (target, signal): the target is a rank, "worker 1" (a data loader worker of rank 1) or "launcher".
    act: tuple = ()
    ready: str = ""
    # torchrun: restarts. loop and mpirun: the start command instead.
    restarts: int = 0
    loop: str = ""
    mpirun: tuple = ()
    nproc: int = 2
    flags: tuple = ()
    port_taken: bool = False
    # Mounts in the job's own namespace: ((folder, size), …); a relative folder is below the job's.
    tmpfs: tuple = ()
    stdin: str = "null"
    # exit: wait for the end. silence: hung, the user looks and copies the log. stopped: hung, then the user ends it.
    end: str = "exit"
    silence: float = 22
    limit: float = 150
    # warn, info (NCCL_DEBUG), detail (TORCH_DISTRIBUTED_DEBUG), fr (Flight Recorder), spy (py-spy), smi, ps, ras,
    # spy2 (py-spy of all ranks, twice), stacks (py-spy of all ranks in one file)
    extra: tuple = ()
    why: str = ""


F = []


def fault(job, name, says, cause, also="", ranks=(), extra="", **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **more))


def short(seconds=30):
    return ("--timeout", str(seconds))


EXTRA_CALL = "skipped-collective op-mismatch collective-desync"
DESYNC = "collective-desync op-mismatch extra-collective"
UNEVEN = "rank-exited-early skipped-collective extra-collective collective-desync op-mismatch shape-mismatch"

# --------------------------------------------------------------------------------------------------------------- plain DDP
fault("ddp", "healthy", "three epochs, evaluation, checkpoints", "none", args=("--epochs", "3"))
fault("ddp", "healthy-compile", "torch.compile, NCCL's long log", "none", args=("--epochs", "2", "--compile"), extra="info")
fault("ddp", "recovered", "a rank was killed once, the launcher started again and the job went on from its checkpoint", "none",
      "process-killed", args=("--epochs", "4", "--resume"), restarts=2, act=(1, "SIGKILL"), ready=r"epoch 1 done",
      why="the restart recovered: nothing is left to do but to ask who killed it")
fault("ddp", "rank0-eval", "evaluation, which reduces, under `if rank == 0`", "extra-collective", EXTRA_CALL, (0,),
      edits=(("        accuracy = evaluate(net, val_loader, device)\n        if rank == 0:\n            print(",
              "        if rank == 0:\n            accuracy = evaluate(net, val_loader, device)\n            print("),),
      args=("--timeout", "30", "--train-size", "1024"), extra="fr")
fault("ddp", "uneven", "a rank has fewer batches than the other", "uneven-inputs", UNEVEN, (1,),
      edits=(("DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True)",
              "SubsetRandomSampler(range(*split_by_scene(args.train_size, rank)))"),
             ("        sampler.set_epoch(epoch)\n", ""),
             ("class ConvNet(", "def split_by_scene(n, rank):\n    cut = n * 9 // 16\n    return (0, cut) if rank == 0 else (cut, n)\n\n\nclass ConvNet("),
             ("import DataLoader, Dataset\n", "import DataLoader, Dataset, SubsetRandomSampler\n")),
      args=("--timeout", "30", "--train-size", "2048"))
fault("ddp", "uneven-spy", "a rank has fewer batches than the other; the user looks with py-spy", "uneven-inputs", UNEVEN, (1,),
      edits=(("DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True)",
              "SubsetRandomSampler(range(0, args.train_size * (6 - rank) // 8))"),
             ("        sampler.set_epoch(epoch)\n", ""),
             ("import DataLoader, Dataset\n", "import DataLoader, Dataset, SubsetRandomSampler\n")),
      args=("--train-size", "1024"), end="silence", extra="spy ps")
fault("ddp", "bad-record", "one image has a single channel: collating fails in a data-loader worker of one rank",
      "application-exception", ranks=(0,),
      edits=(("        return {\"pixel_values\": image, \"label\": label}",
              "        if i == 1502:\n            image = image[:1]\n        return {\"pixel_values\": image, \"label\": label}"),))
fault("ddp", "key-error", "one record has no label; no workers", "application-exception", ranks=(1,),
      edits=(("        return {\"pixel_values\": image, \"label\": label}",
              "        record = {\"pixel_values\": image, \"label\": label}\n        if i in (1111, 2222, 3333):\n            record.pop(\"label\")\n        return record"),),
      args=("--workers", "0"), extra="warn")
fault("ddp", "restart-same", "the same bad record ends every attempt", "application-exception", ranks=(0,),
      edits=(("        return {\"pixel_values\": image, \"label\": label}",
              "        record = {\"pixel_values\": image, \"label\": label}\n        if i == 777:\n            record.pop(\"label\")\n        return record"),),
      restarts=2, limit=170)
fault("ddp", "healthy-long", "sixty epochs", "none", args=("--workers", "0", "--epochs", "60"), env=(("PYTHONFAULTHANDLER", "1"),))
fault("ddp", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), act=(1, "SIGKILL"),
      args=("--epochs", "60"), extra="warn")
fault("ddp", "sigstop", "SIGSTOP of rank 0, the watchdog of the other fires", "process-stopped",
      "stuck-outside-collective peer-process-died", (0,), act=(0, "SIGSTOP"),
      args=("--epochs", "60", "--timeout", "30"), extra="fr ps")
fault("ddp", "segfault", "a native decoder reads a null pointer on rank 1", "process-crashed", "peer-process-died", (1,),
      edits=(("import os\nimport time\n", "import ctypes\nimport os\nimport time\n"),
             ("        image = record[\"pixel_values\"]\n", "        image = decode(record)\n"),
             ("class ConvNet(", "def decode(record, header=None):\n    image = record[\"pixel_values\"]\n    if os.environ[\"RANK\"] == \"1\" and image.max() > 5.1:\n        ctypes.string_at(header or 8, 16)\n    return image\n\n\nclass ConvNet(")),
      args=("--workers", "0", "--epochs", "60"), env=(("PYTHONFAULTHANDLER", "1"),))
fault("ddp", "wrong-interface", "NCCL_SOCKET_IFNAME names an interface that is not there", "wrong-interface",
      "nccl-env-misconfigured", (), env=(("NCCL_SOCKET_IFNAME", "ib0"),))
fault("ddp", "wrong-interface-warn", "NCCL_SOCKET_IFNAME names an interface that is not there", "wrong-interface",
      "nccl-env-misconfigured", (), env=(("NCCL_SOCKET_IFNAME", "bond0"),), extra="warn")
fault("ddp", "duplicate-gpu", "every rank sets device 0", "duplicate-gpu", "rank-env-misconfigured", (),
      edits=(("torch.cuda.set_device(local_rank)", "torch.cuda.set_device(0)"),
             ("device_ids=[local_rank] if cuda else None", "device_ids=[0] if cuda else None")))
fault("ddp", "port-in-use", "the rendezvous port is taken", "port-in-use", port_taken=True)
fault("ddp", "shm-workers", "/dev/shm of 64 KiB: the data loader's workers die of SIGBUS", "shm-full", "process-crashed storage-failure",
      tmpfs=(("/dev/shm", "64k"),), args=("--batch-size", "64"))
fault("ddp", "shm-nccl", "/dev/shm of 64 KiB and NCCL's transport through it", "shm-full", "", (),
      tmpfs=(("/dev/shm", "64k"),), args=("--workers", "0"), env=(("NCCL_P2P_DISABLE", "1"), ("NCCL_CUMEM_HOST_ENABLE", "0")), extra="warn")
fault("ddp", "order", "metrics are reduced in the order of a set, which differs between ranks", "collective-order-mismatch",
      "shape-mismatch op-mismatch collective-desync", (), edits=(("for name in sorted(metrics):", "for name in set(metrics):"),),
      args=("--timeout", "40", "--train-size", "1024"), extra="detail")
fault("ddp", "order-plain", "metrics are reduced in the order of a set, which differs between ranks", "collective-order-mismatch",
      "shape-mismatch op-mismatch collective-desync", (),
      edits=(("for name in sorted(metrics):", "for name in set(metrics):"),
             ("torch.zeros(10, 10, device=device)", "torch.zeros(1000, 1000, device=device)")),
      args=("--timeout", "30", "--train-size", "1024"), extra="fr")
fault("ddp", "upload-hangs", "rank 0 uploads the checkpoint to a store that never answers", "stuck-outside-collective",
      "storage-failure slow-rank-stall", (0,),
      edits=(("import os\nimport time\n", "import os\nimport time\nimport urllib.request\n"),
             ("def train_one_epoch(", "def upload(path):\n    name = os.path.basename(path)\n    with open(path, \"rb\") as f:\n        request = urllib.request.Request(f\"http://127.0.0.1:{os.environ['STORE_PORT']}/bucket/{name}\", data=f.read(), method=\"PUT\")\n    urllib.request.urlopen(request).read()\n\n\ndef train_one_epoch("),
             ("            if args.resume:\n", "            upload(os.path.join(args.output, f\"epoch_{epoch}.pt\"))\n            if args.resume:\n")),
      args=("--timeout", "40", "--train-size", "1024"), extra="spy")
fault("ddp", "device-assert", "a label outside the classes on one rank", "device-assert", "application-exception", (0,),
      edits=(("        return {\"pixel_values\": image, \"label\": label}",
              "        if i == 1502:\n            label = 255\n        return {\"pixel_values\": image, \"label\": label}"),), extra="info")
fault("ddp", "nan-assert", "an assertion on the loss: one record holds infinities", "nan-loss", "application-exception", (0,),
      edits=(("        return {\"pixel_values\": image, \"label\": label}",
              "        if i == 1502:\n            image = image / 0.0\n        return {\"pixel_values\": image, \"label\": label}"),
             ("        optimizer.zero_grad(set_to_none=True)\n",
              "        assert torch.isfinite(loss), f\"rank {rank}: loss is {loss.item()} at epoch {epoch} step {step}\"\n        optimizer.zero_grad(set_to_none=True)\n")))
fault("ddp", "unused-parameters", "a part of the model takes no part in the loss", "application-exception", "", (),
      edits=(("        self.head = nn.Sequential(", "        self.aux = nn.Linear(128, classes)\n        self.head = nn.Sequential("),))
fault("ddp", "worker-killed", "kill -9 of a data-loader worker of rank 1", "process-killed", "application-exception oom-killed", (1,),
      args=("--epochs", "60"), act=("worker 1", "SIGKILL"))
fault("ddp", "sigterm", "the whole job is told to end", "stopped-from-outside", "process-killed", (),
      args=("--epochs", "60"), act=("launcher", "SIGTERM"))
fault("ddp", "sighup", "the terminal is closed", "stopped-from-outside", "process-killed", (),
      args=("--epochs", "60"), act=("launcher", "SIGHUP"))
fault("ddp", "slow-data", "rank 1 reads its images many times slower", "straggler", "data-loading-bound load-imbalance", (1,),
      edits=(("    model.train()\n    for step, (images, labels) in enumerate(loader):\n",
              "    model.train()\n    waited, began = 0.0, time.time()\n    for step, (images, labels) in enumerate(timed(loader)):\n        waited += timed.last\n"),
             ("            print(f\"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}\", flush=True)\n",
              "            print(f\"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}\", flush=True)\n"
              "        if step and step % 20 == 0:\n"
              "            print(f\"[rank {rank}] step {step}: {(time.time() - began) / 20 * 1e3:.1f} ms/step, data wait {waited / 20 * 1e3:.1f} ms\", flush=True)\n"
              "            waited, began = 0.0, time.time()\n"),
             ("def train_one_epoch(", "def timed(loader):\n    it = iter(loader)\n    while True:\n        start = time.perf_counter()\n        try:\n            batch = next(it)\n        except StopIteration:\n            return\n        timed.last = time.perf_counter() - start\n        yield batch\n\n\ndef train_one_epoch("),
             ("        image = record[\"pixel_values\"]\n", "        image = record[\"pixel_values\"]\n        if os.environ[\"RANK\"] == \"1\":\n            for _ in range(60):\n                image = F.avg_pool2d(image.float(), 3, 1, 1) + 0.01 * torch.randn_like(image)\n")),
      args=("--epochs", "3", "--train-size", "2048"), category="performance")

# --------------------------------------------------------------------------- plain DDP, started by a shell loop, a log a rank
LOOP = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\n"
        "for i in 0 1; do\n  RANK=$i LOCAL_RANK=$i python -u {script} {args} > logs/rank$i.log 2>&1 &\ndone\nwait\n")
fault("ddp-loop", "healthy", "two epochs by hand", "none", args=("--epochs", "2"), loop=LOOP)
fault("ddp-loop", "wrong-world-size", "WORLD_SIZE says 3, two ranks are started", "rank-env-misconfigured", "missing-rank", (),
      loop=LOOP.replace("WORLD_SIZE=2", "WORLD_SIZE=3"), args=short(40), ranks_also=((2,),))
fault("ddp-loop", "missing-rank", "rank 1 is never started", "missing-rank", "rank-env-misconfigured", (1,),
      loop=LOOP.replace("for i in 0 1;", "for i in $(seq 0 $((${{NGPU:-1}} - 1)));"), args=short(40))
fault("ddp-loop", "same-rank", "both processes say RANK=0", "rank-env-misconfigured", "port-in-use", (),
      loop=LOOP.replace("RANK=$i LOCAL_RANK=$i", "RANK=0 LOCAL_RANK=$i"), args=short(40))
fault("ddp-loop", "bad-argument", "rank 1 is started with an option that does not exist and ends at once",
      "application-exception", "missing-rank rank-env-misconfigured", (1,), args=short(40), loop=
      "export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2\nRANK=0 LOCAL_RANK=0 python -u {script} {args} > logs/rank0.log 2>&1 &\n"
      "RANK=1 LOCAL_RANK=1 python -u {script} {args} --amp > logs/rank1.log 2>&1 &\nwait\n")
fault("ddp-loop", "exception", "rank 1 fails, rank 0 waits until its watchdog fires", "application-exception", "", (1,), loop=LOOP,
      edits=(("        if i % 2:\n", "        if image.mean() > 0.9 + 0.02 and os.environ[\"RANK\"] == \"1\":\n            raise ValueError(f\"image {i} is overexposed\")\n        if i % 2:\n"),),
      args=("--workers", "0", "--timeout", "30", "--epochs", "30"), extra="fr")
fault("ddp-loop", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), loop=LOOP, act=(0, "SIGKILL"),
      args=("--epochs", "60", "--timeout", "30"), extra="warn")
fault("ddp-loop", "exited-early", "rank 1 returns from main on a condition of its own", "rank-exited-early",
      "uneven-inputs skipped-collective peer-process-died", (1,), loop=LOOP,
      edits=(("    for epoch in range(first, args.epochs):\n", "    budget = float(os.environ.get(\"BUDGET_S\", \"5\")) * (rank == 1) or 1e9\n    began = time.time()\n    for epoch in range(first, args.epochs):\n        if time.time() - began > budget:\n            print(f\"rank {rank}: time budget used up, leaving\", flush=True)\n            os._exit(0)\n"),),
      args=("--epochs", "60", "--train-size", "1024", "--timeout", "30"))
fault("ddp-loop", "sigstop-spy", "rank 1 is stopped; the user looks while it hangs", "process-stopped", "stuck-outside-collective", (1,),
      loop=LOOP, act=(1, "SIGSTOP"), args=("--epochs", "60"), end="silence", extra="ps smi spy")

# ------------------------------------------------------------------------------------------------------ Transformers Trainer
fault("hf", "healthy", "evaluation, checkpoints, logging", "none", args=("--max-steps", "90"))
fault("hf", "healthy-compile", "torch_compile", "none", args=("--max-steps", "60", "--compile"), extra="warn")
fault("hf", "rank0-evaluate", "a callback evaluates on the main process only", "extra-collective", EXTRA_CALL, (0,),
      edits=(("    last = None\n", "    trainer.add_callback(ProbeCallback(trainer))\n    last = None\n"),
             ("def build_corpus(", "class ProbeCallback(TrainerCallback):\n    def __init__(self, trainer):\n        self.trainer = trainer\n\n    def on_step_end(self, args, state, control, **kwargs):\n        if state.global_step == 35 and state.is_world_process_zero:\n            metrics = self.trainer.evaluate(metric_key_prefix=\"probe\")\n            print(\"probe\", metrics, flush=True)\n\n\ndef build_corpus(")),
      args=("--max-steps", "400", "--timeout", "30"), extra="fr")
fault("hf", "key-error", "a corrupted example on rank 1 lacks its labels", "application-exception", "", (1,),
      edits=(("        return example\n", "        if self.tokens[i, 0] == 7 and os.environ[\"RANK\"] == \"1\":\n            return {\"input_ids\": ids, \"labels\": example[\"label\"]}\n        return example\n"),),
      args=("--max-steps", "4000", "--timeout", "40"))
fault("hf", "worker-killed", "kill -9 of a data-loader worker of rank 0", "process-killed", "application-exception oom-killed", (0,),
      args=("--max-steps", "4000"), act=("worker 0", "SIGKILL"))
fault("hf", "cuda-oom", "rank 1 asks for far more GPU memory than there is", "cuda-oom", "", (1,),
      edits=(("class SpeedCallback(TrainerCallback):\n", "class SpeedCallback(TrainerCallback):\n    def on_step_end(self, args, state, control, model=None, **kwargs):\n        if state.global_step == 25 and args.local_process_index == 1:\n            table = torch.zeros(330_000, 256, device=args.device)\n            self.similarity = table @ table.T\n\n"),),
      args=("--max-steps", "400", "--timeout", "40"), extra="smi")
fault("hf", "disk-full", "the folder for checkpoints is full", "storage-failure", "application-exception", (0,), tmpfs=(("out", "16m"),))
fault("hf", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=("--max-steps", "4000"), act=(1, "SIGKILL"))
fault("hf", "main-process-first", "rank 0 prepares the data for longer than the timeout, the other waits", "slow-rank-stall",
      "timeout-too-short stuck-outside-collective", (0,),
      edits=(("    train_set, eval_set = build_corpus(args)\n", "    with training_args.main_process_first(desc=\"tokenising\"):\n        train_set, eval_set = build_corpus(args, training_args.process_index == 0)\n"),
             ("def build_corpus(args):\n", "def tokenise(documents):\n    counts = {}\n    for n in range(documents):\n        for word in (\"doc %d \" % n * 40).split():\n            counts[word] = counts.get(word, 0) + 1\n        if n % 2_000_000 == 0:\n            print(f\"tokenised {n} documents\", flush=True)\n    return counts\n\n\ndef build_corpus(args, first):\n    if first:\n        tokenise(20_000_000)\n")),
      args=("--timeout", "30"), extra="spy")
fault("hf", "restart-same", "every attempt fails on the same truncated checkpoint", "application-exception", "storage-failure", (),
      edits=(("    last = None\n", "    last = None\n    os.makedirs(f\"{args.output}/checkpoint-30\", exist_ok=True)\n    open(f\"{args.output}/checkpoint-30/trainer_state.json\", \"w\").write('{\"global_step\": 30, \"log_his')\n"),),
      args=("--resume",), restarts=2, limit=170)
fault("hf", "input-waits", "a question on the terminal on rank 0", "stuck-outside-collective", "process-stopped slow-rank-stall", (0,),
      edits=(("    metrics = trainer.evaluate()\n", "    if trainer.is_world_process_zero():\n        input(\"overwrite the last model? [y/n] \")\n    metrics = trainer.evaluate()\n"),),
      args=("--max-steps", "40"), stdin="pipe", end="silence", extra="spy")

# -------------------------------------------------------------------------------------------------------------- Lightning
fault("lightning", "healthy", "validation, checkpoints, the usual warnings", "none", args=("--epochs", "3"))
fault("lightning", "healthy-compile", "torch.compile and bf16", "none", args=("--epochs", "2", "--compile", "--precision", "bf16-mixed"))
fault("lightning", "rank0-log", "self.log(sync_dist=True) on the main process only", "extra-collective", EXTRA_CALL, (0,),
      edits=(("            self.print(f\"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}\", flush=True)\n",
              "            self.print(f\"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}\", flush=True)\n        if self.trainer.is_global_zero and batch_idx == 60:\n            self.log(\"probe\", loss, on_step=True, on_epoch=False, sync_dist=True)\n"),),
      args=short(), extra="fr")
fault("lightning", "rank0-checkpoint", "save_checkpoint on the main process only", "extra-collective", EXTRA_CALL, (0,),
      edits=(("            print(f\"epoch {trainer.current_epoch} finished\", flush=True)\n",
              "            print(f\"epoch {trainer.current_epoch} finished\", flush=True)\n            trainer.save_checkpoint(f\"manual/epoch{trainer.current_epoch}.ckpt\")\n"),),
      args=short(), extra="warn")
fault("lightning", "rank0-barrier", "a barrier on the main process only; the user looks with py-spy", "extra-collective", EXTRA_CALL, (0,), ranks_also=((),),
      edits=(("            print(f\"epoch {trainer.current_epoch} finished\", flush=True)\n",
              "            print(f\"epoch {trainer.current_epoch} finished\", flush=True)\n            torch.save(module.state_dict(), \"last_weights.pt\")\n            trainer.strategy.barrier(\"weights\")\n"),),
      end="silence", extra="spy")
fault("lightning", "local-early-stop", "a rank stops on its own loss", "skipped-collective",
      "rank-exited-early uneven-inputs extra-collective collective-desync op-mismatch", (1,),
      edits=(("class EpochReport(Callback):\n", "class StopWhenGood(Callback):\n    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n        if trainer.local_rank == 1 and batch_idx > 50 and outputs[\"loss\"] < 2.0:\n            trainer.should_stop = True\n\n\nclass EpochReport(Callback):\n"),
             (" EpochReport()],", " EpochReport(), StopWhenGood()],")),
      args=short())
fault("lightning", "uneven", "the iterable data set gives rank 1 fewer batches", "uneven-inputs", UNEVEN, (1,),
      edits=(("import DataLoader, Dataset\n", "import DataLoader, Dataset, IterableDataset\n"),
             ("class Classifier(", "class Stream(IterableDataset):\n    def __iter__(self):\n        import torch.distributed as dist\n        rank = dist.get_rank() if dist.is_initialized() else 0\n        source = Spectra(100000)\n        for i in range(6400 if rank == 0 else 4800):\n            yield source[i * 2 + rank]\n\n\nclass Classifier("),
             ("DataLoader(Spectra(12288), batch_size=64, shuffle=True, num_workers=args.workers)", "DataLoader(Stream(), batch_size=64)")),
      args=short(), extra="fr")
fault("lightning", "shape-error", "a batch of another width in validation on rank 1", "application-exception", "", (1,),
      edits=(("        logits = self.net(x)\n        loss = F.cross_entropy(logits, y)\n        acc",
              "        if self.global_rank == 1 and batch_idx == 3 and self.current_epoch == 1:\n            x = x[:, :500]\n        logits = self.net(x)\n        loss = F.cross_entropy(logits, y)\n        acc"),),
      args=short(40))
fault("lightning", "worker-exception", "a KeyError in a data-loader worker", "application-exception", "", (0,),
      edits=(("        return item[\"x\"], item[\"label\"]\n", "        if i == 4242:\n            return item[\"x\"], item[\"labels\"]\n        return item[\"x\"], item[\"label\"]\n"),))
fault("lightning", "device-assert", "a label outside the classes on one rank", "device-assert", "application-exception", (0,),
      edits=(("        return item[\"x\"], item[\"label\"]\n", "        if i == 4242:\n            item[\"label\"] = 12\n        return item[\"x\"], item[\"label\"]\n"),),
      args=short(40), extra="warn")
fault("lightning", "sigterm", "the whole job is told to end", "stopped-from-outside", "process-killed", (), args=("--epochs", "60"), act=("launcher", "SIGTERM"))
fault("lightning", "sigkill", "kill -9 of rank 1, which the first process started", "process-killed", "peer-process-died", (1,),
      args=("--epochs", "60", "--timeout", "30"), act=(1, "SIGKILL"), extra="ps")
fault("lightning", "too-many-devices", "three devices are asked for, two are there", "rank-env-misconfigured", "application-exception", (),
      args=("--devices", "3"))

# ------------------------------------------------------------------------------------------------------------- accelerate
fault("accelerate", "healthy", "evaluation with gather_for_metrics, save_state", "none")
fault("accelerate", "healthy-info", "the same with NCCL's long log", "none", args=("--epochs", "2"), extra="info")
fault("accelerate", "rank0-gather", "evaluation with gather_for_metrics on the main process only", "extra-collective", EXTRA_CALL, (0,),
      edits=(("        accuracy = evaluate(accelerator, model, eval_loader)\n        accelerator.print(f\"epoch {epoch} accuracy {accuracy:.4f}\", flush=True)\n",
              "        if accelerator.is_main_process:\n            accuracy = evaluate(accelerator, model, eval_loader)\n            print(f\"epoch {epoch} accuracy {accuracy:.4f}\", flush=True)\n"),),
      args=("--timeout", "30", "--train_size", "1024"))
fault("accelerate", "rank0-wait", "wait_for_everyone inside `if is_main_process`", "extra-collective", EXTRA_CALL, (0,),
      edits=(("            if done % 20 == 0:\n", "            if done == 30 and accelerator.is_main_process:\n                torch.save(accelerator.unwrap_model(model).state_dict(), \"best.pt\")\n                accelerator.wait_for_everyone()\n            if done % 20 == 0:\n"),),
      end="silence", extra="spy smi")
fault("accelerate", "accumulation", "the ranks accumulate over different numbers of steps", "collective-desync",
      "skipped-collective extra-collective op-mismatch collective-order-mismatch rank-env-misconfigured shape-mismatch", (),
      edits=(("        gradient_accumulation_steps=args.gradient_accumulation_steps,\n",
              "        gradient_accumulation_steps=args.gradient_accumulation_steps * (2 if int(os.environ[\"LOCAL_RANK\"]) else 1),\n"),
             ("import argparse\n", "import argparse\nimport os\n")),
      args=short(), extra="fr", ranks_also=((0,), (1,)))
fault("accelerate", "breakpoint", "breakpoint() left in under is_main_process", "stuck-outside-collective", "process-stopped", (0,),
      edits=(("            if done % 20 == 0:\n", "            if done == 30 and accelerator.is_main_process:\n                breakpoint()\n            if done % 20 == 0:\n"),),
      args=short(30), stdin="pipe", extra="ps")
fault("accelerate", "breakpoint-spy", "pdb.set_trace() left in on one rank; the user looks with py-spy", "stuck-outside-collective", "process-stopped", (1,),
      edits=(("            if done % 20 == 0:\n", "            if loss.item() > 0 and accelerator.process_index == 1 and done > 25:\n                import pdb; pdb.set_trace()\n            if done % 20 == 0:\n"),),
      stdin="pipe", end="silence", extra="spy ps")
fault("accelerate", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective peer-process-died", (1,),
      args=("--timeout", "30", "--epochs", "60"), act=(1, "SIGSTOP"), extra="warn ps")
fault("accelerate", "sigsegv", "SIGSEGV of rank 1", "process-crashed", "peer-process-died process-killed", (1,), args=("--epochs", "60"), act=(1, "SIGSEGV"))
fault("accelerate", "one-visible-gpu", "CUDA_VISIBLE_DEVICES=0 with two processes", "duplicate-gpu",
      "rank-env-misconfigured gpu-isolation", (), env=(("CUDA_VISIBLE_DEVICES", "0"),))
fault("accelerate", "port-in-use", "the main process's port is taken: accelerate takes another and says so", "none", "", (), port_taken=True)
fault("accelerate", "local-break", "a rank leaves the loop on its own loss", "skipped-collective",
      "rank-exited-early uneven-inputs extra-collective collective-desync op-mismatch", (1,),
      edits=(("            done += 1\n", "            done += 1\n            if accelerator.process_index == 1 and done > 33 and loss.item() < 3.5:\n                break\n"),),
      args=short())
fault("accelerate", "cuda-oom", "all pairs on the main process", "cuda-oom", "", (0,),
      edits=(("        accelerator.wait_for_everyone()\n", "        if accelerator.is_main_process:\n            flat = torch.randn(400_000, 64, device=accelerator.device)\n            nearest = torch.cdist(flat, flat).argmin(1)\n        accelerator.wait_for_everyone()\n"),),
      args=("--timeout", "40", "--train_size", "1024"))

# ---------------------------------------------------------------------------------------------- FSDP2, distributed checkpoints
fault("fsdp2", "healthy", "validation, distributed checkpoints, export", "none")
fault("fsdp2", "healthy-compile", "compiled blocks", "none", args=("--steps", "60", "--compile"), extra="warn")
fault("fsdp2", "rank0-state-dict", "the full state dict is asked for on rank 0 only", "extra-collective", EXTRA_CALL, (0,),
      edits=(("    options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n    state = get_model_state_dict(model, options=options)\n    if dist.get_rank() == 0:\n",
              "    if dist.get_rank() == 0:\n        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"),
             ("        if step % args.save_every == 0:\n            save(model, optimizer, step, args.folder)\n", "        if step % args.save_every == 0:\n            export(model, args.folder)\n            save(model, optimizer, step, args.folder)\n")),
      args=short(), extra="fr")
fault("fsdp2", "rank0-validate", "validation on rank 0 only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("        if step % args.eval_every == 0:\n            val = validate(model, val_loader, device)\n            if rank == 0:\n",
              "        if step % args.eval_every == 0:\n            if rank == 0:\n                val = validate(model, val_loader, device)\n"),),
      args=short())
fault("fsdp2", "rank0-validate-spy", "validation on rank 0 only; the user looks with py-spy", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("        if step % args.eval_every == 0:\n            val = validate(model, val_loader, device)\n            if rank == 0:\n",
              "        if step % args.eval_every == 0 and rank == 0:\n            val = validate(model, val_loader, device)\n            if rank == 0:\n"),),
      end="stopped", extra="spy smi ps")
fault("fsdp2", "conditional-clip", "gradients are clipped, a collective, on a condition of the rank's own loss", "skipped-collective",
      DESYNC + " shape-mismatch", (), ranks_also=((0,), (1,)),
      edits=(("        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n",
              "        norm = loss\n        if step > 20 and int(loss.item() * 1000) % 2:\n            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n"),),
      args=short(), extra="fr")
fault("fsdp2", "disk-full", "no room for the distributed checkpoint", "storage-failure", "application-exception", (), tmpfs=(("ckpt", "32m"),), ranks_also=((0,), (1,)))
fault("fsdp2", "slow-storage", "rank 0's copy of the checkpoint takes longer than the timeout", "slow-rank-stall",
      "stuck-outside-collective timeout-too-short storage-failure", (0,),
      edits=(("import argparse\nimport os\n", "import argparse\nimport os\nimport time\n"),
             ("def export(", "def copy_to_archive(folder, rate=64 * 1024):\n    os.makedirs(\"archive\", exist_ok=True)\n    for name in sorted(os.listdir(folder)):\n        with open(os.path.join(folder, name), \"rb\") as src, open(os.path.join(\"archive\", name), \"wb\") as dst:\n            while chunk := src.read(rate):\n                dst.write(chunk)\n                os.fsync(dst.fileno())\n                time.sleep(0.25)\n\n\ndef export("),
             ("                print(f\"step {step} checkpoint saved\", flush=True)\n", "                print(f\"step {step} checkpoint saved, archiving\", flush=True)\n                copy_to_archive(os.path.join(args.folder, f\"step-{step}\"))\n")),
      args=short(), extra="spy")
fault("fsdp2", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=("--steps", "4000"), act=(1, "SIGKILL"), extra="fr")
fault("fsdp2", "cuda-oom", "one rank's batch is many times larger", "cuda-oom", "", (1,),
      edits=(("        tokens = next(loader).to(device)\n        loss", "        tokens = next(loader).to(device)\n        if step == 33 and rank == 1:\n            tokens = tokens.repeat(400_000, 1)\n        loss"),),
      args=short(40), extra="warn")
fault("fsdp2", "index-error", "a token outside the vocabulary on rank 0: a device-side assertion", "device-assert", "application-exception", (0,),
      edits=(("        tokens = next(loader).to(device)\n        loss", "        tokens = next(loader).to(device)\n        if step == 33 and rank == 0:\n            tokens[0, 5] = 50257\n        loss"),),
      args=short(40))
fault("fsdp2", "early-stop", "a rank leaves on its own loss", "skipped-collective", UNEVEN + " uneven-inputs", (1,),
      edits=(("        if step % args.eval_every == 0:\n", "        if rank == 1 and step > 45 and loss.item() < 9.5:\n            break\n        if step % args.eval_every == 0:\n"),),
      args=short(30))
fault("fsdp2", "restart-same", "every attempt asserts at the same step", "application-exception", "nan-loss", (1,),
      edits=(("        loss.backward()\n", "        if rank == 1 and step == 12:\n            loss = loss * float(\"nan\")\n        if not torch.isfinite(loss):\n            raise RuntimeError(f\"non-finite loss {loss.item()} at step {step} on rank {rank}\")\n        loss.backward()\n"),),
      restarts=2, args=short(40), limit=170)
fault("fsdp2", "recovered", "rank 0 was killed once; the restarted job runs to its end", "none", "process-killed", (),
      args=("--steps", "300", "--save-every", "1000"), restarts=1, act=(0, "SIGKILL"), ready=r"step 40/", limit=170)

# ------------------------------------------------------------------------------------------------ tensor-parallel generation
fault("tp", "healthy", "sampling with one seed", "none")
fault("tp", "sampling", "each rank seeds its sampler differently", "collective-desync",
      "skipped-collective shape-mismatch rank-exited-early uneven-inputs extra-collective op-mismatch silent-corruption", (), ranks_also=((0,), (1,)),
      edits=(("args.temperature, 50, seed=1234)", "args.temperature, 50, seed=1234 + rank)"),), args=("--timeout", "30", "--requests", "200"))
fault("tp", "sampling-fr", "the sampler uses an unseeded generator", "collective-desync",
      "skipped-collective shape-mismatch rank-exited-early uneven-inputs extra-collective op-mismatch silent-corruption", (), ranks_also=((0,), (1,)),
      edits=(("        self.generator.manual_seed(seed)\n", "        self.generator.seed()\n"),), args=("--timeout", "30", "--requests", "200"), extra="fr")
fault("tp", "sampling-spy", "the sampler uses an unseeded generator; the user looks with py-spy", "collective-desync",
      "skipped-collective shape-mismatch rank-exited-early uneven-inputs extra-collective op-mismatch silent-corruption undecided", (), ranks_also=((0,), (1,)),
      edits=(("        return torch.multinomial(probs, 1, generator=self.generator)\n", "        torch.seed()\n        return torch.multinomial(probs, 1)\n"),),
      args=("--requests", "200"), end="silence", extra="spy")
fault("tp", "other-batch", "the ranks take requests in different orders: other shapes in the same call", "shape-mismatch",
      "collective-desync collective-order-mismatch silent-corruption", (), ranks_also=((0,), (1,)),
      edits=(("    for request in read_requests(args.requests):\n", "    requests = list(read_requests(args.requests))\n    for request in requests if rank == 0 else sorted(requests, key=lambda r: r[\"prompt\"].shape[1]):\n"),),
      args=short(), extra="detail")
fault("tp", "exception", "the front end of rank 0 fails on a request", "application-exception", "", (0,),
      edits=(("        prompt = request[\"prompt\"].to(device)\n", "        if rank == 0 and request[\"id\"] == 9:\n            stop = request[\"stop\"]\n        prompt = request[\"prompt\"].to(device)\n"),),
      args=short(40))
fault("tp", "input", "rank 0 reads the next prompt from a terminal nobody types in", "stuck-outside-collective",
      "slow-rank-stall process-stopped timeout-too-short", (0,), stdin="pipe",
      edits=(("        prompt = request[\"prompt\"].to(device)\n", "        if rank == 0 and request[\"id\"] > 5:\n            input(\"> \")\n        prompt = request[\"prompt\"].to(device)\n"),),
      args=short(30), extra="warn")
fault("tp", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective peer-process-died", (1,), act=(1, "SIGSTOP"),
      args=("--timeout", "30", "--requests", "4000"), extra="spy ps")

# --------------------------------------------------------------------------------------------------------------- pipeline
fault("pipeline", "healthy", "two stages", "none")
fault("pipeline", "microbatches", "the stages cut the batch into different numbers of microbatches", "application-exception",
      "unmatched-p2p shape-mismatch", (1,),
      edits=(("n_microbatches=args.microbatches,", "n_microbatches=args.microbatches if rank == 0 else 8,"),), args=short(), extra="fr")
fault("pipeline", "exception", "the last stage fails on a batch without a target", "application-exception", "", (1,),
      edits=(("    return batch\n", "    if step == 44:\n        del batch[\"target\"]\n    return batch\n"),), args=short(40))
fault("pipeline", "last-batch", "the first stage's last batch is smaller than the schedule expects", "application-exception", "shape-mismatch", (0,),
      edits=(("            schedule.step(batch[\"x\"])\n", "            schedule.step(batch[\"x\"] if step < 60 else batch[\"x\"][:48])\n"),), args=short(40))
fault("pipeline", "sigkill", "kill -9 of stage 0", "process-killed", "peer-process-died", (0,), args=("--steps", "4000"), act=(0, "SIGKILL"), extra="warn")
fault("pipeline", "break", "the last stage leaves the loop on its own loss", "rank-exited-early",
      "unmatched-p2p skipped-collective extra-collective op-mismatch collective-desync uneven-inputs", (1,),
      edits=(("        if last and step % 10 == 0:\n", "        if last and step > 50 and losses[0] < 5:\n            print(\"target loss reached\", flush=True)\n            break\n        if last and step % 10 == 0:\n"),),
      args=short())
fault("pipeline", "slow-stage", "the first stage computes many times longer than the second", "load-imbalance", "pipeline-bubble straggler", (0,),
      category="performance",
      edits=(("    part = Part(args.width, args.layers).to(device)\n", "    part = Part(args.width, 96 if rank == 0 else args.layers).to(device)\n    seconds = {\"compute\": 0.0}\n    def enter(m, a):\n        torch.cuda.synchronize(); m.began = time.perf_counter()\n    def leave(m, a, o):\n        torch.cuda.synchronize(); seconds[\"compute\"] += time.perf_counter() - m.began\n    part.register_forward_pre_hook(enter); part.register_forward_hook(leave)\n    began = time.perf_counter()\n"),
             ("import argparse\nimport os\n", "import argparse\nimport os\nimport time\n"),
             ("        if last and step % 10 == 0:\n", "        if step % 30 == 0:\n            print(f\"stage {rank}: {(time.perf_counter() - began) / step * 1e3:.1f} ms/step, forward compute {seconds['compute'] / step * 1e3:.1f} ms/step\", flush=True)\n        if last and step % 10 == 0:\n")))

# -------------------------------------------------------------------------------------------------------------------- JAX
JAX = ("for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i python -u {script} --coordinator 127.0.0.1:{port} --num-processes 2 --process-id $i {args} > logs/proc$i.log 2>&1 &\ndone\nwait\n")
fault("jax", "healthy", "200 steps, evaluation", "none", loop=JAX)
fault("jax", "missing", "process 1 is never started", "missing-rank", "rank-env-misconfigured", (1,), loop=JAX.replace("0 1;", "0;"),
      args=("--init-timeout", "30"))
fault("jax", "sigkill", "kill -9 of process 1", "process-killed", "peer-process-died", (1,), loop=JAX, args=("--steps", "40000"), act=(1, "SIGKILL"))
fault("jax", "sigkill-0", "kill -9 of process 0, the coordinator", "process-killed", "peer-process-died", (0,), loop=JAX, args=("--steps", "40000"), act=(0, "SIGKILL"))
fault("jax", "exception", "process 1 fails on a record", "application-exception", "", (1,), loop=JAX,
      edits=(("    return record[\"x\"], record[\"y\"]\n", "    if step == 70 and process == 1:\n        record.pop(\"y\")\n    return record[\"x\"], record[\"y\"]\n"),), end="silence", silence=40, extra="spy")
fault("jax", "rank0-evaluate", "the evaluation, a program over all devices, on process 0 only", "extra-collective",
      EXTRA_CALL + " uneven-inputs stuck-outside-collective undecided", (0,), loop=JAX,
      edits=(("            value = float(evaluate(params, x, y))\n            if process == 0:\n                print(f\"step {step} eval loss",
              "            if process == 0:\n                value = float(evaluate(params, x, y))\n                print(f\"step {step} eval loss"),),
      args=("--steps", "400"), end="silence", silence=45, extra="spy")
fault("jax", "wrong-count", "three processes are announced, two started", "rank-env-misconfigured", "missing-rank", (), ranks_also=((2,),),
      loop=JAX.replace("--num-processes 2", "--num-processes 3"), args=("--init-timeout", "30"))
fault("jax", "port-in-use", "the coordinator's port is taken", "port-in-use", "", (), ranks_also=((0,),), loop=JAX, port_taken=True, args=("--init-timeout", "30"))
fault("jax", "steps", "process 1 makes fewer steps", "uneven-inputs", "rank-exited-early skipped-collective extra-collective", (1,), loop=JAX,
      edits=(("    for step in range(1, args.steps + 1):\n", "    steps = args.steps if process == 0 else args.steps - 30\n    for step in range(1, steps + 1):\n"),),
      end="silence", silence=45, limit=150)
fault("jax", "sigstop", "process 1 is stopped", "process-stopped", "peer-process-died stuck-outside-collective", (1,), loop=JAX, args=("--steps", "40000"), act=(1, "SIGSTOP"), extra="ps")

# ------------------------------------------------------------------------------------------------------------- CuPy and NCCL
CUPY = ("for i in 0 1; do\n  python -u {script} --world 2 --rank $i --port {port} {args} > logs/rank$i.log 2>&1 &\ndone\nwait\n")
fault("cupy", "healthy", "400 steps", "none", loop=CUPY)
fault("cupy", "order", "rank 1 reduces in another order", "collective-order-mismatch", "shape-mismatch op-mismatch collective-desync undecided", (1,), loop=CUPY,
      ranks_also=((), (0,)), edits=(("        comm.all_reduce(g, grad)\n        comm.all_reduce(stats, total)\n",
              "        if args.rank == 1 and step > 80:\n            comm.all_reduce(stats, total)\n            comm.all_reduce(g, grad)\n        else:\n            comm.all_reduce(g, grad)\n            comm.all_reduce(stats, total)\n"),
             ("cp.zeros(4, dtype=cp.float32)", "cp.zeros(4_000_000, dtype=cp.float32)")),
      end="silence", extra="spy smi")
fault("cupy", "missing-rank", "rank 1 is never started", "missing-rank", "rank-env-misconfigured", (1,), loop=CUPY.replace("0 1;", "0;"), end="silence", extra="spy ps")
fault("cupy", "exception", "rank 1 fails on a batch, rank 0 waits for ever", "application-exception", "", (1,), loop=CUPY,
      edits=(("    return cp.asarray(batch[\"x\"])", "    if step == 120 and rank == 1:\n        batch = {k: v for k, v in batch.items() if k != \"x\"}\n    return cp.asarray(batch[\"x\"])"),),
      end="silence", extra="ps")
fault("cupy", "exits-early", "rank 1 leaves when its own loss is small", "rank-exited-early", "skipped-collective uneven-inputs peer-process-died", (1,), loop=CUPY,
      edits=(("        norm = float(cp.linalg.norm(g))\n", "        norm = float(cp.linalg.norm(g))\n        if step > 90 and args.rank == 1 and loss < 3:\n            print(f\"[{args.rank}] converged at step {step}\", flush=True)\n            os._exit(0)\n"),),
      end="silence", extra="warn ps")
fault("cupy", "duplicate-gpu", "both ranks use device 0", "duplicate-gpu", "rank-env-misconfigured nccl-env-misconfigured", (), loop=CUPY.replace("--world 2", "--world 2 --device 0"), end="silence", extra="warn")
fault("cupy", "oom", "rank 0 builds a kernel matrix that does not fit", "cuda-oom", "", (0,), loop=CUPY,
      edits=(("        if step % 200 == 0:\n", "        if step == 150 and args.rank == 0:\n            k = cp.ones((220_000, 220_000), dtype=cp.float32)\n        if step % 200 == 0:\n"),), end="silence", extra="smi")
fault("cupy", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), loop=CUPY, args=("--steps", "40000"), act=(0, "SIGKILL"), end="silence", extra="ps")

# ------------------------------------------------------------------------------------------------------ C++, NCCL and MPI
fault("jacobi", "healthy", "4000 iterations", "none", args=("4000",))
fault("jacobi", "healthy-info", "the same with NCCL's long log", "none", args=("2000",), extra="info")
fault("jacobi", "no-input", "rank 1 cannot read its input and returns", "application-exception", "storage-failure rank-exited-early", (1,),
      edits=(("  return true;\n", "  return rank == 0 || access(path, R_OK) == 0;\n"),))
fault("jacobi", "segfault", "rank 1 writes past its history", "process-crashed", "peer-process-died", (1,), args=("8000",),
      edits=(("      if (rank == 0 && it % 500 == 0) {\n", "      if (rank == 1 && it == 1500) field[1ull << 42] = value;\n      if (rank == 0 && it % 500 == 0) {\n"),))
fault("jacobi", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=("400000",), act=(1, "SIGKILL"))
fault("jacobi", "three-ranks", "three ranks on two GPUs", "rank-env-misconfigured", "application-exception launcher-failure duplicate-gpu", (2,), nproc=3)
fault("jacobi", "duplicate-gpu", "all ranks use device 0", "duplicate-gpu", "rank-env-misconfigured application-exception", (),
      edits=(("  int device = rank;\n", "  int device = 0;\n"),), extra="warn")
fault("jacobi", "skip", "rank 1 leaves out a reduction once it has converged", "skipped-collective",
      "collective-desync op-mismatch unmatched-p2p undecided", (1,), ranks_also=((), (0,)), args=("8000",),
      edits=(("    if (it % 100 == 0) {\n", "    bool converged = it > 1500 && rank == 1;\n    if (it % 100 == 0 && !converged) {\n"),), end="silence", extra="ras smi ps")
fault("jacobi", "no-binary", "the program is not where mpirun looks", "launcher-failure", "", (), mpirun=("-np", "2", "./bin/jacobi"))
fault("jacobi", "no-slots", "more ranks than slots", "launcher-failure", "rank-env-misconfigured", (), mpirun=("-np", "64", "./jacobi", "4000"))
fault("jacobi", "no-host", "a host that does not resolve", "launcher-failure", "hostname-resolution", (), mpirun=("-np", "2", "--host", "gpu-a17:1,gpu-a18:1", "./jacobi", "4000"))
fault("jacobi", "cuda-error", "an illegal access on rank 1", "illegal-memory-access", "application-exception", (1,),
      edits=(("    float* t = a;\n", "    if (it == 1700 && rank == 1) a += 1ull << 38;\n    float* t = a;\n"),))

# ------------------------------------------------------------------------------------------------------ PyTorch under mpirun
fault("mpi-torch", "healthy", "300 steps", "none")
fault("mpi-torch", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=("6000",), act=(0, "SIGKILL"))
fault("mpi-torch", "exception", "rank 1 fails on a shard", "application-exception", "", (1,),
      edits=(("    return torch.randn(64, 1024, generator=g)\n", "    shard = torch.randn(64, 1024, generator=g)\n    return shard.view(64, -1, 1000) if rank == 1 and step == 90 else shard\n"),))
fault("mpi-torch", "no-port", "MASTER_PORT is not set", "rank-env-misconfigured", "application-exception", (), env=(("MASTER_PORT", ""),))
fault("mpi-torch", "four-ranks", "four ranks on two GPUs", "rank-env-misconfigured", "application-exception", (2, 3), nproc=4, ranks_also=((2,), (3,), ()))

# -------------------------------------------------------------------------------------------------------------- DeepSpeed
fault("deepspeed", "healthy", "ZeRO-2, checkpoints", "none")
fault("deepspeed", "healthy-zero3", "ZeRO-3", "none", args=("--stage", "3", "--steps", "80"), extra="warn")
SAVE = "                engine.save_checkpoint(args.save_dir, tag=f\"step{step}\")\n"
fault("deepspeed", "rank0-save", "save_checkpoint on rank 0 only", "extra-collective", EXTRA_CALL, (0,),
      edits=(("            if step % 60 == 0:\n", "            if step % 60 == 0 and rank == 0:\n"),), end="silence", extra="spy")
fault("deepspeed", "rank0-save-zero3", "the 16-bit model is saved on rank 0 only under ZeRO-3", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=((SAVE, "                if rank == 0:\n                    engine.module.eval()\n                    probe = engine.module(torch.zeros(4, 512, device=engine.device, dtype=torch.bfloat16))\n                    print(f\"probe {probe.float().abs().mean().item():.4f}\", flush=True)\n"),),
      args=("--stage", "3", "--timeout", "30"), extra="fr")
fault("deepspeed", "exception", "rank 1 fails on a sample", "application-exception", "", (1,),
      edits=(("            x, target = x.to(", "            if step == 50 and rank == 1:\n                x = x.reshape(-1, 500)\n            x, target = x.to("),), args=short(40))
fault("deepspeed", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=("--steps", "6000"), act=(1, "SIGKILL"))
fault("deepspeed", "batch-config", "the batch sizes of the configuration do not multiply out", "application-exception", "rank-env-misconfigured", (),
      edits=(("        \"train_micro_batch_size_per_gpu\": 8,\n", "        \"train_batch_size\": 100,\n        \"train_micro_batch_size_per_gpu\": 8,\n"),))
fault("deepspeed", "uneven", "rank 1 makes fewer steps", "uneven-inputs", UNEVEN, (1,),
      edits=(("            if step >= args.steps:\n", "            if rank == 1 and step == 70:\n                step = args.steps\n            if step >= args.steps:\n"),), args=short(), extra="warn")
fault("deepspeed", "spy-stuck", "rank 0 waits for a lock file that nobody removes", "stuck-outside-collective", "", (0,),
      edits=((SAVE, SAVE + "                if rank == 0:\n                    wait_for_lock(args.save_dir + \"/.lock\")\n"),
             ("def main():\n", "def wait_for_lock(path):\n    open(path, \"a\").close()\n    while os.path.exists(path):\n        time.sleep(1)\n\n\ndef main():\n"),
             ("import os\n", "import os\nimport time\n")),
      end="silence", extra="spy")

# ---------------------------------------------------------------------------------------------------------- Megatron-Core
fault("megatron", "healthy", "tensor parallel over two", "none")
fault("megatron", "data-one-rank", "rank 0 sees the end of its data and stops; the other waits for the broadcast", "rank-exited-early",
      "skipped-collective uneven-inputs extra-collective op-mismatch collective-desync", (0,),
      edits=(("        tokens, labels, positions, mask = get_batch(iteration, args)\n", "        if rank == 0 and iteration > 77:\n            break\n        tokens, labels, positions, mask = get_batch(iteration, args)\n"),), args=short())
fault("megatron", "heads", "the attention heads do not divide by the tensor-parallel size", "application-exception", "rank-env-misconfigured", (),
      edits=(("num_attention_heads=8", "num_attention_heads=7"),))
fault("megatron", "sigkill", "kill -9 of rank 0", "process-killed", "peer-process-died", (0,), args=("--train-iters", "6000"), act=(0, "SIGKILL"), extra="warn")
fault("megatron", "sigstop", "SIGSTOP of rank 1", "process-stopped", "stuck-outside-collective peer-process-died", (1,), args=("--train-iters", "60000", "--timeout", "30"), act=(1, "SIGSTOP"), extra="fr")
fault("megatron", "rank0-barrier", "the checkpoint and its barrier on rank 0 only", "extra-collective", EXTRA_CALL + " shape-mismatch", (0,),
      edits=(("        if iteration % args.save_interval == 0:\n", "        if iteration % args.save_interval == 0 and rank == 0:\n"),), args=("--timeout", "30", "--save-interval", "60"), extra="fr")
fault("megatron", "exception", "the loader of rank 0 fails", "application-exception", "", (0,),
      edits=(("    return {\"text\": text}\n", "    if step == 66:\n        raise IndexError(f\"document index {step * 1000} is out of range for indexed dataset of size 65536\")\n    return {\"text\": text}\n"),), args=short(40))
fault("megatron", "tp-size", "tensor-parallel size 4 with two ranks", "rank-env-misconfigured", "application-exception", (), args=("--tp", "4"))

# -------------------------------------------------------------------------------------------------------------------- TRL
fault("trl", "healthy", "supervised fine-tuning with samples", "none")
fault("trl", "rank0-predict", "the main process evaluates alone in a callback", "extra-collective", EXTRA_CALL, (0,),
      edits=(("    trainer.train()\n", "    sampler.trainer = trainer\n    trainer.train()\n"),
             ("callbacks=[SampleCallback(tokenizer)])", "callbacks=[sampler])"),
             ("    trainer = SFTTrainer(", "    sampler = SampleCallback(tokenizer)\n    trainer = SFTTrainer("),
             ("            print(\"sample:\"", "            if state.global_step == 50:\n                print(trainer_metrics(self.trainer), flush=True)\n            print(\"sample:\""),
             ("class SampleCallback(", "def trainer_metrics(trainer):\n    return trainer.evaluate()[\"eval_loss\"]\n\n\nclass SampleCallback("),
             ("        self.tokenizer = tokenizer\n", "        self.tokenizer = tokenizer\n        self.trainer = None\n")),
      args=("--max-steps", "400", "--timeout", "30"))
fault("trl", "exception", "the sampling callback fails on rank 0", "application-exception", "", (0,),
      edits=(("            print(\"sample:\"", "            reward = out.new_zeros(3) + torch.ones(4, device=out.device)\n            print(\"sample:\""),), args=short(40))
fault("trl", "sigkill", "kill -9 of rank 1", "process-killed", "peer-process-died", (1,), args=("--max-steps", "6000"), act=(1, "SIGKILL"))


# ------------------------------------------------------------------------------------------------------------ some of each
fault("ddp", "worker-stopped", "a data-loader worker of rank 1 is stopped: the rank waits for its batch", "stuck-outside-collective",
      "process-stopped", (1,), args=("--epochs", "60"), act=("worker 1", "SIGSTOP"), end="silence", extra="spy ps")
fault("ddp", "sigterm-rank", "kill (SIGTERM) of rank 1 alone", "process-killed", "peer-process-died stopped-from-outside", (1,),
      args=("--epochs", "60"), act=(1, "SIGTERM"))
fault("ddp", "three-processes", "three processes on two GPUs", "rank-env-misconfigured", "application-exception cuda-init-failed", (2,), nproc=3)
fault("ddp", "dtype", "rank 1 reduces its metrics in half precision", "dtype-mismatch", "shape-mismatch collective-desync", (1,), ranks_also=((), (0,)),
      edits=(("        dist.all_reduce(metrics[name])\n", "        if metrics[name].is_floating_point() and dist.get_rank() == 1:\n            metrics[name] = metrics[name].half()\n        dist.all_reduce(metrics[name])\n"),
             ("torch.zeros(10, 10, device=device)", "torch.zeros(2000, 1000, device=device)")),
      args=("--timeout", "30", "--train-size", "1024"), extra="fr")
fault("ddp", "dtype-detail", "rank 1 reduces its metrics in half precision", "dtype-mismatch", "shape-mismatch collective-desync", (1,), ranks_also=((), (0,)),
      edits=(("        dist.all_reduce(metrics[name])\n", "        if dist.get_rank() == 1:\n            metrics[name] = metrics[name].half()\n        dist.all_reduce(metrics[name])\n"),),
      args=("--timeout", "30", "--train-size", "1024"), extra="detail")
fault("ddp", "gather-uneven", "the ranks gather different numbers of predictions", "shape-mismatch", "collective-desync uneven-inputs silent-corruption", (), ranks_also=((0,), (1,)),
      edits=(("    dist.all_reduce(stats)\n    return", "    mine = torch.rand(2_000_000 + 700_000 * dist.get_rank(), device=device)\n    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]\n    dist.all_gather(parts, mine)\n    dist.all_reduce(stats)\n    return"),),
      args=("--timeout", "30", "--train-size", "1024"), extra="fr")
fault("ddp", "root", "each rank broadcasts from itself", "op-mismatch", "collective-desync collective-order-mismatch silent-corruption", (), ranks_also=((0,), (1,)),
      edits=(("    for epoch in range(first, args.epochs):\n", "    for epoch in range(first, args.epochs):\n        order = torch.randperm(8_000_000, device=device)\n        dist.broadcast(order, src=rank)\n"),),
      args=("--timeout", "30", "--train-size", "1024"), extra="fr")
fault("ddp", "healthy-detail", "everything that talks is on", "none", args=("--epochs", "2"), extra="detail", env=(("NCCL_DEBUG", "INFO"), ("TORCH_CPP_LOG_LEVEL", "INFO")))
fault("ddp-loop", "env-mismatch", "rank 1 alone has NCCL_PROTO set", "nccl-env-mismatch", "nccl-env-misconfigured", (1,), ranks_also=((), (0,)),
      loop=LOOP.replace("RANK=$i LOCAL_RANK=$i", "$([ $i = 1 ] && echo env NCCL_PROTO=Simple) env RANK=$i LOCAL_RANK=$i"), args=short(), extra="info")
fault("ddp-loop", "open-files", "ulimit -n is 40: CUDA says that the devices are busy", "too-many-open-files", "gpu-busy cuda-init-failed", (), ranks_also=((0,), (1,)), loop="ulimit -n 40\n" + LOOP, args=(*short(40), "--workers", "8"))
fault("ddp-loop", "no-such-host", "MASTER_ADDR does not resolve", "hostname-resolution", "", (), loop=LOOP.replace("127.0.0.1", "gpu-a17"), args=short(30))
fault("ddp-loop", "debugger", "pdb in evaluation on rank 1, from an input that is closed", "application-exception", "process-stopped stuck-outside-collective", (1,), loop=LOOP,
      edits=(("        prediction = model(images).argmax(1)\n", "        prediction = model(images).argmax(1)\n        if dist.get_rank() == 1:\n            breakpoint()\n"),), args=("--timeout", "30", "--train-size", "1024"))
fault("hf", "sigstop-spy", "rank 0 is stopped; the user looks", "process-stopped", "stuck-outside-collective", (0,), args=("--max-steps", "4000"), act=(0, "SIGSTOP"), end="silence", extra="spy ps")
fault("hf", "healthy-fr", "Flight Recorder and NCCL's long log on", "none", args=("--max-steps", "60"), extra="info", env=(("TORCH_FR_BUFFER_SIZE", "2000"), ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")))
fault("lightning", "nan", "the learning rate is absurd: the loss is NaN and training goes on", "nan-loss", "", (),
      edits=(("lr=1e-3, classes", "lr=1e12, classes"), ("EarlyStopping(monitor=\"val_loss\", patience=20)", "EarlyStopping(monitor=\"val_loss\", patience=20, check_finite=False)")), args=("--epochs", "2"))
fault("lightning", "breakpoint", "breakpoint() left in validation", "stuck-outside-collective", "process-stopped", (0,),
      edits=(("        logits = self.net(x)\n        loss = F.cross_entropy(logits, y)\n        acc", "        logits = self.net(x)\n        if self.trainer.is_global_zero and not self.trainer.sanity_checking:\n            breakpoint()\n        loss = F.cross_entropy(logits, y)\n        acc"),),
      stdin="pipe", args=short(30), extra="spy")
fault("fsdp2", "kernel-stuck", "a kernel of rank 1 does not end", "gpu-kernel-stuck", "stuck-outside-collective slow-rank-stall", (1,),
      edits=(("        loss = loss_of(model, tokens)\n", "        if step == 35 and rank == 1:\n            torch.cuda._sleep(1 << 45)\n        loss = loss_of(model, tokens)\n"),),
      args=short(), extra="fr spy smi")
fault("fsdp2", "detail", "TORCH_DISTRIBUTED_DEBUG=DETAIL: its wrapper of the process group lacks a call that the checkpoint makes", "framework-bug",
      "application-exception library-mismatch", (), args=("--steps", "80"), env=(("TORCH_FR_BUFFER_SIZE", "2000"),), extra="detail")
fault("tp", "nan-probabilities", "the temperature is zero: sampling asserts on the GPU", "device-assert", "application-exception nan-loss", (),
      args=("--temperature", "0", "--timeout", "40"), ranks_also=((0,), (1,)))
fault("pipeline", "unmatched", "stage 0 receives a loss every ten steps, stage 1 sends it every twenty", "unmatched-p2p", "skipped-collective stuck-outside-collective collective-desync op-mismatch", (1,),
      ranks_also=((0,), ()),
      edits=(("        if last and step % 10 == 0:\n", "        if last and step % 20 == 0:\n            dist.send(torch.stack(losses).mean().detach(), 0)\n        if first and step % 10 == 0:\n            value = torch.zeros((), device=device)\n            dist.recv(value, world - 1)\n            print(f\"stage 0 step {step}: loss {value.item():.4f}\", flush=True)\n        if last and step % 10 == 0:\n"),),
      args=short(), extra="fr")
fault("pipeline", "unmatched-spy", "the last stage answers a request that is never sent", "unmatched-p2p", "extra-collective stuck-outside-collective collective-desync", (1,), ranks_also=((0,), ()),
      edits=(("        if last and step % 10 == 0:\n", "        if last and step == 45:\n            flag = torch.zeros(1, device=device)\n            dist.recv(flag, 0)\n            flag.item()\n        if last and step % 10 == 0:\n"),),
      end="silence", extra="spy")
fault("jax", "same-id", "both processes say that they are process 0", "rank-env-misconfigured", "missing-rank port-in-use", (), ranks_also=((1,), (0,)), loop=JAX.replace("--process-id $i", "--process-id 0"), args=("--init-timeout", "30"))
fault("jax", "other-shapes", "process 1 has another batch size: another program", "shape-mismatch", "collective-desync stuck-outside-collective undecided", (1,), ranks_also=((), (0,)),
      loop=JAX, edits=(("        x, y = local_batch(step, process, args.batch)\n", "        x, y = local_batch(step, process, args.batch if step < 50 or process == 0 else args.batch // 2)\n"),), end="silence", silence=40, extra="spy")
fault("jax", "oom", "process 1 materialises a table that does not fit", "cuda-oom", "", (1,), loop=JAX,
      edits=(("        if step % 20 == 0:\n", "        if step == 70 and process == 1:\n            table = jnp.ones((300_000, 256))\n            nearest = (table @ table.T).block_until_ready()\n        if step % 20 == 0:\n"),), end="silence", silence=40)
fault("cupy", "port-in-use", "the store's port is taken", "port-in-use", "", (), ranks_also=((0,),), loop=CUPY, port_taken=True, end="silence")
fault("jacobi", "counts", "rank 1 sends half a row", "shape-mismatch", "unmatched-p2p collective-desync undecided", (1,), ranks_also=((), (0,)), args=("3000",),
      edits=(("      NCCL(ncclSend(b + cols, cols, ncclFloat, up, comm, stream));\n", "      NCCL(ncclSend(b + cols, it > 1200 ? cols / 2 : cols, ncclFloat, up, comm, stream));\n"),), end="silence", extra="ras warn")
fault("jacobi", "sigint", "mpirun is interrupted", "stopped-from-outside", "process-killed", (), args=("400000",), act=("launcher", "SIGINT"))
fault("mpi-torch", "sigterm", "mpirun is told to end", "stopped-from-outside", "process-killed", (), args=("6000",), act=("launcher", "SIGTERM"))
fault("deepspeed", "sigterm", "the launcher is told to end", "stopped-from-outside", "process-killed", (), args=("--steps", "6000"), act=("launcher", "SIGTERM"))
fault("deepspeed", "sigstop", "rank 0 is stopped", "process-stopped", "stuck-outside-collective peer-process-died", (0,), args=("--steps", "6000", "--timeout", "30"), act=(0, "SIGSTOP"), extra="ps")
fault("megatron", "stuck-spy", "rank 1 waits for a lock between processes", "stuck-outside-collective", "", (1,),
      edits=(("        if iteration % args.save_interval == 0:\n", "        if iteration == 50 and rank == 1:\n            import fcntl\n            a, b = open(\"index.lock\", \"w\"), open(\"index.lock\", \"w\")\n            fcntl.flock(a, fcntl.LOCK_EX)\n            fcntl.flock(b, fcntl.LOCK_EX)\n        if iteration % args.save_interval == 0:\n"),),
      end="silence", extra="spy ps")
fault("trl", "healthy-info", "NCCL's long log", "none", extra="info")
fault("accelerate", "recovered", "a rank was killed once; accelerate's launcher was told to restart", "none", "process-killed", (),
      args=("--epochs", "6"), restarts=1, act=(1, "SIGKILL"), ready=r"epoch 0 step 60 ", limit=170)


def with_nccl_logs(number, one):
    """About a third of the jobs set NCCL_DEBUG."""
    if one.job == "jax" or {"warn", "info", "detail"} & set(one.extra):
        return one
    more = ("warn",) if number % 6 == 1 else ("info",) if number % 12 == 4 else ()
    return replace(one, extra=one.extra + more)


FAULTS = [with_nccl_logs(number, one) for number, one in enumerate(F)]
