"""A training job with a guard, and faults on request. One process is one rank; without RANK it starts its ranks itself."""

import argparse
import contextlib
import datetime
import json
import os
import socket
import time

import torch

# Optimizers and FSDP2 import these late; before the fork once is enough.
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor
from torch import nn

from ringleader.torch import guard

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["plain", "ddp", "fsdp", "hsdp", "replicas"])
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--flip-gradient", help="RANK:STEP:PARAMETER, after the reduction")
parser.add_argument("--flip-parameter", help="RANK:STEP:PARAMETER, after the step")
parser.add_argument("--spoil", help="RANK:STEP:LAYER:NaN|Inf, in backward")
parser.add_argument("--spike", type=int)
parser.add_argument("--way")
parser.add_argument("--action", default="warn")
parser.add_argument("--lag", type=int)
parser.add_argument("--close", action="store_true", help="read what is unread before the process group is gone")
parser.add_argument("--no-gradients", action="store_true")
parser.add_argument("--loss", help="RANK:STEP:VALUE, what the guard is told instead of the loss")
parser.add_argument("--differs", help="RANK:JSON, options of the guard on that rank")
parser.add_argument("--unguarded", type=int, help="a rank that sets up no guard")
parser.add_argument("--small", action="store_true")
parser.add_argument("--device", default="cpu")
parser.add_argument("--ranks", type=int, help="start so many ranks; what each prints goes to RINGLEADER_RING_DIR/out-RANK")
args = parser.parse_args()
listening = None
if "RANK" not in os.environ:
    # The store's port is taken before anything else could take it.
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    # Forks, so that torch is imported once; nothing has started a thread yet.
    children = []
    for number in range(args.ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(number), WORLD_SIZE=str(args.ranks))
            out = os.open(os.path.join(os.environ["RINGLEADER_RING_DIR"], "out-%d" % number), os.O_WRONLY | os.O_CREAT)
            os.dup2(out, 1)
            os.dup2(out, 2)
            break
        children.append(pid)
    else:
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        os._exit(max(map(abs, ends)))
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device(args.device, rank % max(torch.cuda.device_count(), 1)) if args.device == "cuda" else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
# Ranks that wait for nobody end the test.
limit = datetime.timedelta(seconds=180)
store = None
if listening is not None:
    port, fd = listening.getsockname()[1], listening.detach() if rank == 0 else None
    store = dist.TCPStore("127.0.0.1", port, n, rank == 0, limit, master_listen_fd=fd)
where = {} if store is None else dict(store=store, rank=rank, world_size=n)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=limit, **where)
# It ends with the process group, not with the interpreter.
del store, where

width = 16 if args.small else 256
torch.manual_seed(rank if args.way == "own-init" else 0)
layers = [nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 8)]
if args.way == "buffers":
    layers.insert(1, nn.BatchNorm1d(width))
model = nn.Sequential(*layers).to(device)
if args.way == "frozen":
    model[0].requires_grad_(False)
if args.way == "frozen-on-1":
    model[0].requires_grad_(rank != 1)
if args.way == "tied":
    model[1].weight = model[0].weight
group = None
if args.kind == "ddp":
    if args.way == "subgroup":
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        group = groups[rank // 2]
    model = nn.parallel.DistributedDataParallel(
        model, process_group=group, find_unused_parameters=args.way == "unused", gradient_as_bucket_view=True
    )
elif args.kind in ("fsdp", "hsdp", "replicas"):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # replicas: HSDP whose shard groups have one rank each.
    shape = {"fsdp": (n,), "hsdp": (2, n // 2), "replicas": (n, 1)}[args.kind]
    names = ("shard",) if args.kind == "fsdp" else ("replicate", "shard")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
inner = model.module if args.kind == "ddp" else model


def local(tensor):
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def flip(tensor):
    bits = local(tensor.detach()).view(-1).view(torch.int32)
    bits[bits.numel() // 2] ^= 1 << 3


def wanted(text, step):
    if not text:
        return None
    who, when, *what = text.split(":")
    return what if int(who) == rank and int(when) == step else None


# A fault after the reduction and before the guard looks: registered first.
step = 0
optimizer.register_step_pre_hook(
    lambda *_: flip(dict(inner.named_parameters())[wanted(args.flip_gradient, step)[0]].grad)
    if wanted(args.flip_gradient, step)
    else None
)
gathers = 0
all_gather = dist.all_gather_into_tensor


def counted(*words, **named):
    global gathers
    gathers += 1
    return all_gather(*words, **named)


dist.all_gather_into_tensor = counted
options = dict(every=args.every, group=group, action=args.action, lag=args.lag, gradients=not args.no_gradients)
who, _, what = (args.differs or "").partition(":")
if who == str(rank):
    options.update(json.loads(what))
if args.unguarded is not None:
    dist.distributed_c10d._get_default_store().set_timeout(datetime.timedelta(seconds=3))
if rank == args.unguarded:
    time.sleep(10)
    os._exit(0)
try:
    watch = guard(model, optimizer, **options)
except ValueError as error:
    # A hook that is left would look at gradients for nobody.
    left = sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())
    print("refused, %d hooks left: %s" % (left, error), flush=True)
    # At once, and the store with the rank that holds it.
    os._exit(0)


def spoil(layer, what):
    """From this layer on backward carries a value that is no number."""

    def hook(_, inputs, output):
        output.register_hook(lambda gradient: gradient.masked_fill(torch.ones_like(gradient, dtype=torch.bool), float(what)))

    return inner[int(layer)].register_forward_hook(hook)


torch.manual_seed(100 + rank)
for step in range(1, args.steps + 1):
    bad = wanted(args.spoil, step)
    handle = spoil(*bad) if bad else None
    for micro in range(2 if args.way == "accumulate" else 1):
        skip = args.way == "accumulate" and micro == 0
        with model.no_sync() if skip else contextlib.nullcontext():
            loss = model(torch.randn(8, width, device=device)).square().mean()
            loss.backward()
    if handle:
        handle.remove()
    told = wanted(args.loss, step)
    if args.loss:
        watch.loss(float(told[0]) if told else loss)
    if args.spike is not None:
        watch.loss(100.0 if step == args.spike else loss)
    if args.kind == "plain":
        for p in model.parameters():
            if p.grad is not None and n > 1:
                dist.all_reduce(p.grad)
    if args.way == "clip":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    try:
        optimizer.step()
    except RuntimeError as error:
        print(type(error).__name__, error)
        break
    changed = wanted(args.flip_parameter, step)
    if changed:
        flip(dict(inner.named_parameters())[changed[0]])
    optimizer.zero_grad()
if args.close:
    watch.close()
print("rank %d done, %.1f s of guard, %d gathers" % (rank, watch.seconds, gathers))
dist.barrier()
dist.destroy_process_group()
