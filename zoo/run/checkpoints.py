#!/usr/bin/env python3
"""Saves checkpoints with real frameworks, then damages them: is the newest one found, and skipped once it is damaged?

    zoo/run/checkpoints.py --ringleader PROGRAM --python PYTHON [--only torch,dcp,…] [--out FILE]

PYTHON has torch and as many of transformers, accelerate, lightning, deepspeed, megatron-core and orbax-checkpoint as available;
missing ones are reported. Each layout is saved at steps 10 and 20. Then every file of the newest checkpoint is cut to half,
emptied and removed, one after the other, and `ringleader run --print-checkpoint` runs each time: it must name step 10
and the reason, or the damage of this file is listed as not detected. CPU only.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

STEPS = (10, 20)
# Files that no program needs to resume training, or that every load rewrites.
IDLE = ("README.md", "zero_to_fp32.py", "training_args.bin", "generation_config.json")


def make_torch(to):
    import torch

    for step in STEPS:
        torch.save({"step": step, "model": torch.nn.Linear(64, 64).state_dict()}, f"{to}/step_{step}.pt")


def make_legacy(to):
    import torch

    for step in STEPS:
        torch.save({"step": step, "model": torch.nn.Linear(64, 64).state_dict()}, f"{to}/step_{step}.pt",
                   _use_new_zipfile_serialization=False)


def make_dcp(to):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for step in STEPS:
        weights = distribute_tensor(torch.arange(4096.0).reshape(64, 64), mesh, [Shard(0)])
        dcp.save({"model": {"w": weights}, "step": step}, checkpoint_id=f"{to}/step-{step}")
    dist.destroy_process_group()


def tiny():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))


def make_trainer(to):
    import torch
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(200)]
    how = TrainingArguments(output_dir=to, max_steps=STEPS[-1], save_steps=10, per_device_train_batch_size=2, report_to=[],
                            use_cpu=True, disable_tqdm=True, ddp_backend="gloo" if "RANK" in os.environ else None)
    Trainer(model=tiny(), args=how, train_dataset=rows).train()


def make_accelerate(to):
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    for step in STEPS:
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        accelerator.save_state(f"{to}/step_{step}")
    accelerator.end_training()


def lightning_module():
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def training_step(self, batch, _):
            return self.layer(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(100, 64)), batch_size=2)
    return Module(), rows


def make_lightning(to):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    module, rows = lightning_module()
    keep = ModelCheckpoint(dirpath=to, every_n_train_steps=10, save_top_k=-1, save_last="link")
    lightning.Trainer(max_steps=STEPS[-1], accelerator="cpu", callbacks=[keep], logger=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(module, rows)


def make_lightning_sharded(to):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import ModelParallelStrategy

    module, rows = lightning_module()

    def configure_model():
        from torch.distributed.fsdp import fully_shard

        fully_shard(module.layer, mesh=module.device_mesh["data_parallel"])

    module.configure_model = configure_model
    keep = ModelCheckpoint(dirpath=to, every_n_train_steps=10, save_top_k=-1)
    lightning.Trainer(max_steps=STEPS[-1], accelerator="cpu", devices=2, callbacks=[keep], logger=False,
                      strategy=ModelParallelStrategy(process_group_backend="gloo"), enable_progress_bar=False,
                      enable_model_summary=False, use_distributed_sampler=False).fit(module, rows)


def make_deepspeed(to):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch

    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(64, 64)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), optimizer=torch.optim.Adam(model.parameters()),
        config={"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False})
    for step in range(1, STEPS[-1] + 1):
        engine.backward(engine(torch.ones(2, 64)).sum())
        engine.step()
        if step in STEPS:
            engine.save_checkpoint(to, tag=f"global_step{step}")


def make_megatron(to):
    import torch
    import torch.distributed as dist
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing import ShardedTensor

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # It calls CUDA without GPUs: to synchronise, and to count errors.
    torch.cuda.synchronize, torch.cuda.current_device = lambda *_: None, lambda: "cpu"
    try:
        parallel_state.initialize_model_parallel(1)
    except (AssertionError, RuntimeError, AttributeError) as error:
        print(f"model parallel groups: {error}")
    for step in STEPS:
        folder = f"{to}/iter_{step:07}"
        if rank == 0:
            os.makedirs(folder)
        dist.barrier()
        part = ShardedTensor.from_rank_offsets("w", torch.ones(32, 64), (0, rank, world))
        dist_checkpointing.save({"model": {"w": part}, "iteration": step, "checkpoint_version": 3.0}, folder)
        # Its training loop, which is not in the package, writes the tracker file after everything else.
        if rank == 0:
            with open(f"{to}/latest_checkpointed_iteration.txt", "w") as file:
                file.write(str(step))


def make_orbax(to):
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(os.path.abspath(to)) as manager:
        for step in STEPS:
            manager.save(step, args=ocp.args.StandardSave({"w": jnp.arange(4096.0).reshape(64, 64), "n": step}))
        manager.wait_until_finished()


def make_safetensors(to):
    for step in STEPS:
        tiny().save_pretrained(f"{to}/step_{step}", max_shard_size="60KB")


LAYOUTS = {"torch": (make_torch, 1), "legacy": (make_legacy, 1), "dcp": (make_dcp, 2), "trainer": (make_trainer, 1),
           "trainer-2": (make_trainer, 2), "accelerate": (make_accelerate, 2), "lightning": (make_lightning, 1),
           "lightning-sharded": (make_lightning_sharded, 1), "deepspeed": (make_deepspeed, 2), "megatron": (make_megatron, 2),
           "orbax": (make_orbax, 1), "safetensors": (make_safetensors, 1)}


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def made(args, name, to):
    """Runs this file once per rank; returns the reason of a failure."""
    world = LAYOUTS[name][1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port()), "WORLD_SIZE": str(world), "CUDA_VISIBLE_DEVICES": "",
           "LOCAL_WORLD_SIZE": str(world), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    if world == 1:
        env = {key: value for key, value in env.items() if key not in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    ranks = []
    for rank in range(world):
        mine = {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} if world > 1 else env
        ranks.append(subprocess.Popen([args.python, os.path.abspath(__file__), "--make", name, "--to", to], env=mine,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = []
    for child in ranks:
        try:
            said.append(child.communicate(timeout=args.limit)[0])
        except subprocess.TimeoutExpired:
            child.kill()
            said.append(child.communicate()[0] + "\ntimeout")
    bad = [text for child, text in zip(ranks, said) if child.returncode]
    return bad[0].strip().splitlines()[-1][:300] if bad else None


def ask(args, folder):
    done = subprocess.run([args.ringleader, "run", "--print-checkpoint", "--checkpoints", folder], capture_output=True, text=True)
    return done.stdout.strip(), done.stderr


def damage(path, how):
    if how == "gone":
        os.remove(path)
    else:
        os.truncate(path, os.path.getsize(path) // 2 if how == "half" else 0)


def play(args, name):
    folder = tempfile.mkdtemp(prefix=f"ckpt-{name}-")
    row = {"layout": name}
    if args.made:
        shutil.copytree(os.path.join(args.made, name), folder, symlinks=True, dirs_exist_ok=True)
    why = None if args.made else made(args, name, folder)
    if why:
        return {**row, "not_made": why, "folder": folder}
    newest, said = ask(args, folder)
    row["newest"] = os.path.relpath(newest, folder) if newest else None
    row["finds_20"] = "20" in os.path.basename(newest or "")
    if not row["finds_20"]:
        return {**row, "said": said, "folder": folder}
    if os.path.isdir(newest):
        files = sorted(os.path.join(at, file) for at, _, all_files in os.walk(newest) for file in all_files)
    else:
        files = [newest]
    unseen, n_seen, n_unnamed = {}, 0, 0
    for file in files:
        for how in ("half", "nothing", "gone"):
            if how != "gone" and os.path.getsize(file) == 0 or len(files) == 1 and how == "gone":
                continue
            with open(file, "rb") as whole:
                data = whole.read()
            times = os.stat(file)
            damage(file, how)
            other, said = ask(args, folder)
            with open(file, "wb") as whole:
                whole.write(data)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            if "10" in os.path.basename(other or ""):
                n_seen += 1
                n_unnamed += os.path.basename(newest) not in said
            else:
                unseen.setdefault(os.path.relpath(file, folder), []).append(how)
    row.update(files=len(files), seen=n_seen, passed_over_without_a_word=n_unnamed, unseen=unseen,
               needed_unseen=sorted(name for name in unseen if os.path.basename(name) not in IDLE))
    if not args.keep:
        shutil.rmtree(folder)
    else:
        row["folder"] = folder
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", default="target/debug/ringleader")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default=",".join(LAYOUTS))
    parser.add_argument("--limit", type=float, default=240)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--made", default=None, metavar="DIR", help="folders that were made before, one for each layout")
    parser.add_argument("--out", default=None)
    parser.add_argument("--make", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--to", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        LAYOUTS[args.make][0](args.to)
        return
    args.ringleader = os.path.abspath(args.ringleader)
    rows = []
    for name in args.only.split(","):
        rows.append(play(args, name))
        print(json.dumps(rows[-1]), flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(any(row.get("passed_over_without_a_word") or not row.get("finds_20") for row in rows if "not_made" not in row))


if __name__ == "__main__":
    main()
