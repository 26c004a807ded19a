"""The guard on GPUs, under torchrun with any number of ranks: planted faults in DDP and FSDP2, a healthy run, and its cost.

torchrun --nproc-per-node N zoo/gpus/guard.py [faults] [ddp] [fsdp]

Without arguments all of it; with arguments the planted faults, or the cost in DDP or FSDP2, alone.
"""

import os
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
from ringleader.torch import guard  # noqa: E402

rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", torch.cuda.current_device())
dist.init_process_group("nccl", device_id=device)
n = dist.get_world_size()
warnings.simplefilter("ignore")


def say(*words):
    for turn in range(n):
        if turn == rank:
            print("rank %d:" % rank, *words, flush=True)
        dist.barrier()


def make(kind, width, depth, dtype=torch.float32):
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, 64)).to(device, dtype)
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # Replicated over all ranks, sharded over one: HSDP compares the replicas. And only sharded, with nothing to compare.
        shape, names = ((n,), ("shard",)) if kind == "fsdp" else ((n, 1), ("replicate", "shard"))
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def local(tensor):
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def run(kind, steps, every, flip=None, spoil=None, width=512, depth=4, batch=64):
    model, optimizer = make(kind, width, depth)
    inner = model.module if kind == "ddp" else model
    events, step = [], 0

    def plant(*_):
        if flip and (rank, step) == flip[:2]:
            bits = local(dict(inner.named_parameters())[flip[2]].grad).view(-1).view(torch.int32)
            bits[bits.numel() // 3] ^= 1 << 2

    optimizer.register_step_pre_hook(plant)
    watch = guard(model, optimizer, every=every, action=events.append)
    torch.manual_seed(100 + rank)
    for step in range(1, steps + 1):
        handle = None
        if spoil and (rank, step) == spoil[:2]:

            def hook(_, inputs, output):
                output.register_hook(lambda g: torch.full_like(g, float("nan")))

            handle = inner[spoil[2]].register_forward_hook(hook)
        model(torch.randn(batch, width, device=device)).square().mean().backward()
        if handle:
            handle.remove()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    watch.close()
    return events


def first(events, kind):
    found = next((e for e in events if e["kind"] == kind), None)
    return found and {key: found.get(key) for key in ("rank", "step", "parameter", "layer", "value", "odd", "differing")}


parts = sys.argv[1:] or ["faults", "ddp", "fsdp"]
last = n - 1
for kind in ("ddp", "hsdp") if "faults" in parts else ():
    say(kind, "bit flipped on rank %d in step 7:" % last, first(run(kind, 8, 1, flip=(last, 7, "2.weight")), "digest"))
for kind in ("ddp", "fsdp", "hsdp") if "faults" in parts else ():
    say(kind, "NaN on rank %d in step 5 from module 4 on:" % last, first(run(kind, 5, 1, spoil=(last, 5, 4)), "nan"))
for kind in ("ddp", "fsdp", "hsdp") if "faults" in parts else ():
    say(kind, "healthy, 1000 steps:", len(run(kind, 1000, 1, width=128)), "events")


def cost(kind, every, steps, width, depth, batch):
    """Milliseconds per step, after ten steps."""
    model, optimizer = make(kind, width, depth)
    watch = guard(model, optimizer, every=every) if every else None
    x = torch.randn(batch, width, device=device)
    for step in range(steps + 10):
        if step == 10:
            torch.cuda.synchronize()
            dist.barrier()
            start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    each = (time.perf_counter() - start) / steps * 1e3
    if watch:
        watch.close()
    return each


for kind, width, depth, batch in (("ddp", 4096, 24, 16384), ("fsdp", 4096, 24, 16384)):
    if kind not in parts:
        continue
    # In turns, since a GPU slows down as it warms up.
    turns = [(cost(kind, 0, 100, width, depth, batch), cost(kind, 100, 100, width, depth, batch)) for _ in range(4)]
    without = statistics.median(one for one, _ in turns)
    seldom = statistics.median(guarded / one for one, guarded in turns)
    always = cost(kind, 1, 30, width, depth, batch)
    if rank == 0:
        size = (width * width + width) * depth / 1e6
        print(
            "%s of %.0f M parameters: %.2f ms a step, every=100 %+.2f %% (%s), every=1 %+.2f %%"
            % (
                kind,
                size,
                without,
                (seldom - 1) * 100,
                ", ".join("%+.2f" % ((guarded / one - 1) * 100) for one, guarded in turns),
                (always / without - 1) * 100,
            ),
            flush=True,
        )
dist.destroy_process_group()
