#: silent split-barrier-around-a-yield
import torch.distributed as dist
from contextlib import contextmanager

@contextmanager
def zero_first(local_rank):
    if local_rank not in (-1, 0):
        dist.barrier(device_ids=[local_rank])
    yield
    if local_rank == 0:
        dist.barrier(device_ids=[0])

def build(local_rank):
    with zero_first(local_rank):
        return read()
#: silent split-barrier-in-one-function
import torch

def cache(args):
    if args.rank != 0:
        torch.distributed.barrier()
    write(args)
    if args.rank == 0:
        torch.distributed.barrier()
#: silent return-after-its-own-barrier
import torch.distributed as dist

def save(state, coordinator_rank):
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
        return
    write(state)
    dist.barrier()
#: silent gather-object-on-each-path
import torch.distributed as dist

def log(data, args):
    if dist.get_rank() == 0:
        out = [None] * dist.get_world_size()
        dist.gather_object(data, out, dst=0, group=args.group)
        return merge(out)
    dist.gather_object(data, None, dst=0, group=args.group)
    return None
#: silent gather-then-continue
import torch.distributed as dist

def steps(params, rank):
    for param in params:
        if param.is_small and rank == 0:
            update(param)
            dist.all_gather(param.out, param.x)
            continue
        dist.all_gather(param.out, param.x)
#: silent group-of-members
import torch.distributed as dist
from megatron.core import parallel_state

def reduce_embedding(weight):
    if parallel_state.is_rank_in_embedding_group():
        dist.all_reduce(weight.grad, group=parallel_state.get_embedding_group())
#: silent not-in-the-group
import torch.distributed as dist

def _rank_not_in_group(group):
    return group is None

def all_reduce(x, group=None):
    if dist._rank_not_in_group(group):
        return
    dist.all_reduce(x, group=group)
#: silent pipeline-rank-and-data-group
import torch.distributed as dist

class Module:
    def train_batch(self, batch):
        loss = self.run(batch)
        if self.pp_rank == self.final_stage:
            dist.all_reduce(loss, group=self.dp_group)
#: silent ranks-of-the-group
import torch.distributed as dist

class Sampler:
    def __init__(self, ranks):
        self.group = dist.new_group(ranks)
        self.ranks = ranks

    def run(self, x):
        if dist.get_rank() in self.ranks:
            dist.all_reduce(x, group=self.group)
#: silent rank-minus-one-is-not-distributed
import os
import torch.distributed as dist

RANK = int(os.getenv("RANK", -1))

def train(stop):
    if RANK != -1:
        objects = [stop if RANK == 0 else None]
        dist.broadcast_object_list(objects, 0)
        if RANK != 0:
            stop = objects[0]
    if stop:
        return
    dist.barrier()
#: silent rank-in-the-environment
import os
import torch.distributed as dist

def setup():
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl")
#: silent rank-of-a-matrix
import torch.distributed as dist

class GaLoreAdam:
    def step(self, group):
        if group["rank"] == 0:
            dist.all_reduce(group["x"])

class LoraLayer:
    def __init__(self, rank):
        self.rank = rank

    def forward(self, x):
        if self.rank > 0:
            torch.distributed.all_reduce(x)
#: silent flag-of-a-mode
import torch.distributed as dist

def state(model, rank0_only):
    if rank0_only:
        dist.barrier()
#: silent rank-is-none
import torch.distributed as dist

def gather(param, rank=None):
    if rank is None:
        dist.all_gather(param.parts, param.mine)
#: silent only-if-sharded
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(args, model):
    if not args.fsdp:
        return
    dist.barrier()
#: silent size-then-data
import torch.distributed as dist

def broadcast(data, rank, src):
    if rank == src:
        if len(data) == 0:
            dist.broadcast(torch.tensor([0]), src)
            return data
        dist.broadcast(torch.tensor([len(data)]), src)
        dist.broadcast(data, src)
        return data
    size = torch.tensor([0])
    dist.broadcast(size, src)
    n = size.item()
    if n == 0:
        return []
    data = torch.empty(n)
    dist.broadcast(data, src)
    return data
#: silent root-and-others
import torch.distributed as dist

def gather(data, dst=0):
    rank = dist.get_rank()
    if rank == dst:
        output = [None for _ in range(dist.get_world_size())]
        dist.gather_object(data, output, dst=dst)
        return output
    else:
        dist.gather_object(data, None, dst=dst)
        return []
#: silent scatter-from-root
import torch.distributed as dist

def scatter(parts, out, rank):
    dist.scatter(out, scatter_list=parts if rank == 0 else None, src=0)
#: silent work-and-barrier
import torch

def build(rank):
    if rank == 0:
        compile_kernels()
        torch.distributed.barrier()
    else:
        torch.distributed.barrier()
        load_kernels()
#: silent server-and-its-loop
import torch
import torch.distributed as dist

def run(model):
    if dist.get_rank() == 0:
        serve(model)
    else:
        while True:
            choice = torch.zeros(1)
            torch.distributed.broadcast(choice, 0)
            if choice.item() == 0:
                model.generate()
#: silent state-dict-on-all
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def save(model, rank):
    model = FSDP(model)
    state = model.state_dict()
    if rank == 0:
        torch.save(state, "model.pt")
#: silent load-on-zero-then-broadcast
import torch.distributed as dist

def load(path, rank):
    objects = [None]
    if rank == 0:
        objects = [read(path)]
    dist.broadcast_object_list(objects, src=0)
    return objects[0]
#: silent work-of-rank-0
import os
import torch.distributed as dist
import wandb

def log(rank, loss, step):
    if rank == 0:
        wandb.log({"loss": loss}, step=step)
        os.makedirs("out", exist_ok=True)
        print(loss)
    dist.barrier()
#: silent one-after-the-other
import torch.distributed as dist

def in_turn(work):
    rank, world = dist.get_rank(), dist.get_world_size()
    for r in range(world):
        if r == rank:
            work()
        dist.barrier()
#: silent distributed-or-not
import torch.distributed as dist

def mean(x, world_size):
    if not dist.is_available() or not dist.is_initialized():
        return x
    if world_size > 1:
        dist.all_reduce(x)
    return x / world_size
#: silent subset-with-local-synchronization
import torch.distributed as dist

def groups(rank):
    if rank < 4:
        return dist.new_group([0, 1, 2, 3], use_local_synchronization=True)
    return None
#: silent reduce-read-on-0
import torch.distributed as dist

def total(x, rank):
    dist.monitored_barrier()
    dist.reduce(x, dst=0)
    if rank == 0:
        return x.item()
#: silent even-and-odd
import torch.distributed as dist

def ring(x, y, rank, world):
    if rank % 2 == 0:
        dist.send(x, (rank + 1) % world)
        dist.recv(y, (rank - 1) % world)
    else:
        dist.recv(y, (rank - 1) % world)
        dist.send(x, (rank + 1) % world)
#: silent local-log
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def training_step(self, batch, n):
        if self.trainer.is_global_zero:
            self.log("loss", 1.0, rank_zero_only=True)
        self.log("other", 2.0, sync_dist=True)
#: silent agreed-stop
import torch
import torch.distributed as dist

def train(loader, model):
    for step in range(1000):
        loss = model(step)
        stop = torch.tensor([1.0 if torch.isnan(loss) else 0.0])
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop.item() > 0:
            break
        dist.all_reduce(loss)
#: silent halves-in-two-functions
import torch.distributed as dist

def wait_for_rank_0(rank):
    if rank != 0:
        dist.barrier()

def release(rank):
    if rank == 0:
        dist.barrier()

def build(rank):
    wait_for_rank_0(rank)
    work()
    release(rank)
#: silent only-if-sharded-asked-by-getattr
import torch.distributed as dist

def evaluate(model, data, args):
    shards = getattr(args, "fsdp", False) and getattr(args, "distributed", False)
    is_first = dist.get_rank() == 0
    if not shards and not is_first:
        return {}
    for batch in range(10):
        share(model, args)

def share(model, args):
    if args.fsdp and args.distributed:
        dist.broadcast(model.signal, src=0)

def main(model, data, args):
    evaluate(model, data, args)
#: silent one-helper-in-both-branches
import torch.distributed as dist

def finish(kind, x):
    if kind == "full":
        dist.barrier()
        log(x, "a full state is written by all ranks, one after the other")
    else:
        dist.all_reduce(x)
        log(x, "the parts are summed, and each rank keeps its own of them")

def save(x, args, rank):
    finish(args.kind, x)
    if rank == 0:
        print("saved")
        finish(args.kind, x)
    else:
        finish(args.kind, x)
#: silent attribute-that-decides-alike-in-both-branches
import torch.distributed as dist

def choose(args):
    if args.full:
        return "full"
    return "part"

class Saver:
    def __init__(self, args):
        self.mode = choose(args)

    def save(self, rank):
        if rank == 0:
            if self.mode == "full":
                dist.barrier()
            print("saved")
        elif self.mode == "full":
            dist.barrier()
