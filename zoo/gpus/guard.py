"""The guard on GPUs, under torchrun with any number of ranks: planted faults in DDP and FSDP2, a healthy run, and its cost.

torchrun --nproc-per-node N zoo/gpus/guard.py [faults] [stops] [ddp] [fsdp] [hsdp]

Without arguments all but the last; with arguments the planted faults, how ranks stop together, or the cost in DDP, FSDP2 or HSDP, alone. TURNS, 3 unless
set, is how often the cost at every=100 is measured.
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
    with device:
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.GELU()]
        model = nn.Sequential(*layers, nn.Linear(width, 64)).to(dtype)
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


def run(kind, steps, every, flip=None, spoil=None, width=512, depth=4, batch=64, **options):
    """Events of a job; or, with options of the guard that raise, what was raised."""
    model, optimizer = make(kind, width, depth)
    inner = model.module if kind == "ddp" else model
    events, step = [], 0

    def plant(*_):
        if flip and (rank, step) == flip[:2]:
            bits = local(dict(inner.named_parameters())[flip[2]].grad).view(-1).view(torch.int32)
            bits[bits.numel() // 3] ^= 1 << 2

    optimizer.register_step_pre_hook(plant)
    try:
        watch = guard(model, optimizer, every=every, **(options or {"action": events.append}))
    except ValueError as error:
        return str(error)
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
        try:
            optimizer.step()
        except RuntimeError as error:
            return "step %d: %s" % (step, error)
        optimizer.zero_grad()
    torch.cuda.synchronize()
    watch.close()
    return events


def first(events, kind):
    found = next((e for e in events if e["kind"] == kind), None)
    return found and {key: found.get(key) for key in ("rank", "step", "parameter", "layer", "value", "odd", "differing")}


parts = sys.argv[1:] or ["faults", "stops", "ddp", "fsdp"]
last = n - 1
for kind in ("ddp", "hsdp") if "faults" in parts else ():
    say(kind, "bit flipped on rank %d in step 7:" % last, first(run(kind, 8, 1, flip=(last, 7, "2.weight")), "digest"))
for kind in ("ddp", "fsdp", "hsdp") if "faults" in parts else ():
    say(kind, "NaN on rank %d in step 5 from module 4 on:" % last, first(run(kind, 5, 1, spoil=(last, 5, 4)), "nan"))
for kind in ("ddp", "fsdp", "hsdp") if "faults" in parts else ():
    say(kind, "healthy, 1000 steps:", len(run(kind, 1000, 1, width=128)), "events")
for kind in ("ddp", "hsdp") if "stops" in parts else ():
    say(kind, "every=2 on rank %d:" % last, run(kind, 3, 1 + (rank == last), action="raise"))
    for options in ({}, {"lag": 1}, {"gradients": False}):
        stopped = run(kind, 9, 1, spoil=(last, 5, 4), action="raise", **options)
        say(kind, "NaN on rank %d in step 5, raise, %s:" % (last, options or "lag 0"), stopped)
    say(kind, "healthy, raise, lag 1, 1000 steps:", len(run(kind, 1000, 1, width=128, action="raise", lag=1)), "events")


def timed(model, optimizer, x, n):
    """Milliseconds of n steps together, and of each by itself on the GPU's clock."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter()
    events[0].record()
    for event in events[1:]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        event.record()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3, [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def guarded(model, optimizer, x, every, n):
    """As timed, with a guard of its own."""
    watch = guard(model, optimizer, every=every)
    found = timed(model, optimizer, x, n)
    watch.close()
    return found


def of_one_check(model, optimizer, x, n_checks):
    """Milliseconds that a check costs, and the standard error: four steps around each check against the four before them."""
    _, each = guarded(model, optimizer, x, 8, 8 * n_checks + 2)
    around = [sum(each[at - 1 : at + 3]) - sum(each[at - 5 : at - 1]) for at in range(7, 8 * n_checks, 8)]
    return statistics.mean(around), statistics.stdev(around) / len(around) ** 0.5


def ratios(of, plain):
    """Percent over the plain steps of the same turn: mean, standard error, and each."""
    each = [(a / b - 1) * 100 for a, b in zip(of, plain)]
    error = statistics.stdev(each) / len(each) ** 0.5
    return "%+.2f %% (standard error %.2f; %s)" % (statistics.mean(each), error, ", ".join("%+.2f" % one for one in each))


def cost(kind, width, depth, batch, n_turns):
    """Prints what the guard costs: in turns on one model, since GPUs slow down as they warm up. Plain steps are measured twice in
    each turn: their difference is what such a measurement can tell."""
    model, optimizer = make(kind, width, depth)
    x = torch.randn(batch, width, device=device)
    timed(model, optimizer, x, 20)
    guarded(model, optimizer, x, 1, 5)
    ways = {
        "plain": lambda: timed(model, optimizer, x, 100)[0],
        "every=100": lambda: guarded(model, optimizer, x, 100, 100)[0],
        "again": lambda: timed(model, optimizer, x, 100)[0],
    }
    found = {way: [] for way in ways}
    for turn in range(n_turns):
        order = list(ways)
        for way in order[turn % 3 :] + order[: turn % 3]:
            found[way].append(ways[way]())
    check, error = of_one_check(model, optimizer, x, 50)
    always, _ = guarded(model, optimizer, x, 1, 50)
    plain, _ = timed(model, optimizer, x, 50)
    if rank == 0:
        step = statistics.median(found["plain"]) / 100
        print("%s of %.0f M parameters, %.2f ms a step" % (kind, (width * width + width) * depth / 1e6, step))
        print("  every=100: " + ratios(found["every=100"], found["plain"]))
        print("  the same without a guard: " + ratios(found["again"], found["plain"]))
        print("  a check: %+.2f ms (standard error %.2f), %+.3f %% of 100 steps" % (check, error, check / step))
        print("  every=1: %+.1f %%" % ((always / plain - 1) * 100), flush=True)


for kind in ("ddp", "fsdp", "hsdp"):
    if kind in parts:
        cost(kind, 4096, 24, 16384, max(int(os.environ.get("TURNS", "3")), 2))
start = time.perf_counter()
dist.destroy_process_group()
print("rank %d: the process group was destroyed in %.1f s" % (rank, time.perf_counter() - start), flush=True)
