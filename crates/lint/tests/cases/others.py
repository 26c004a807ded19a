#: fires own-group-only group-by-rank
import torch.distributed as dist

def make_group(size):
    rank = dist.get_rank()
    start = rank // size * size
    return dist.new_group(list(range(start, start + size)))
#: silent all-groups
import torch.distributed as dist

def make_group(size):
    rank, mine = dist.get_rank(), None
    for start in range(0, dist.get_world_size(), size):
        ranks = list(range(start, start + size))
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = group
    return mine
#: fires ring-of-senders all-send-first
import torch.distributed as dist

def ring(x, y):
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.send(x, (rank + 1) % world)
    dist.recv(y, (rank - 1) % world)
#: fires transposed-view non-contiguous-tensor
import torch.distributed as dist

def gather(x, out):
    dist.all_gather_into_tensor(out, x.transpose(0, 1))
#: silent transposed-copy
import torch.distributed as dist

def gather(x, out):
    dist.all_gather_into_tensor(out, x.transpose(0, 1).contiguous())
#: low fires local-rank-for-rank local-rank-as-rank
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl", rank=int(os.environ["LOCAL_RANK"]), world_size=torch.cuda.device_count())
#: silent rank-for-rank
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
#: fires gpu-0-for-all same-device-on-all-ranks
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(model):
    dist.init_process_group("nccl")
    model = DDP(model.cuda(0))
#: low fires set-of-names unordered-collectives
import torch.distributed as dist

def reduce_all(metrics):
    for name in set(metrics):
        dist.all_reduce(metrics[name])
#: silent sorted-names
import torch.distributed as dist

def reduce_all(metrics):
    for name in sorted(set(metrics)):
        dist.all_reduce(metrics[name])
#: low fires nan-leaves-the-loop local-stop-decision
import torch
import torch.distributed as dist

def train(loader, model):
    for step in range(1000):
        loss = model(step)
        if torch.isnan(loss):
            break
        dist.all_reduce(loss)
#: low silent nan-agreed
import torch
import torch.distributed as dist

def train(loader, model):
    for step in range(1000):
        loss = model(step)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0:
            break
        dist.all_reduce(loss)
#: low fires file-on-each-rank collective-under-local-condition|local-stop-decision
import os
import torch.distributed as dist

def load(path, objects):
    if os.path.exists(path):
        dist.broadcast_object_list(objects, src=0)
#: low fires exception-skips-a-step handler-skips-collective|local-stop-decision
import torch.distributed as dist

def train(batches, model):
    for step in range(100):
        try:
            loss = model.step(step)
        except ValueError:
            continue
        dist.all_reduce(loss)
#: low fires uneven-batches uneven-loader
import torch.distributed as dist

def validate(val_loader, model):
    for batch in val_loader:
        loss = model(batch)
        dist.all_reduce(loss)
#: low fires empty-batch collective-under-local-condition|local-stop-decision
from accelerate import Accelerator

def metric(accelerator, x):
    if x.numel() == 0:
        return None
    return accelerator.gather(x)
#: fires ignored-without-reason ignore-without-reason
import torch.distributed as dist

def f(rank):
    if rank == 0:
        dist.barrier()  # ringleader: ignore[collective-under-rank-condition]
#: silent ignored-with-reason
import torch.distributed as dist

def f(rank):
    if rank == 0:
        dist.barrier()  # ringleader: ignore[collective-under-rank-condition] the others wait in the server
#: fires nothing-to-ignore unused-ignore
x = 1  # ringleader: ignore[collective-under-rank-condition] once upon a time
#: low fires random-state-of-rank-0-for-all seed-equal-on-all-ranks
import torch
import torch.distributed as dist

def resume(path):
    states = [torch.load(path)["rng"] if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(states, src=0)
    torch.set_rng_state(states[0])
#: low silent random-state-of-each-rank
import torch
import torch.distributed as dist

def resume(path):
    states = torch.load(path)["rng_of_all_ranks"]
    torch.set_rng_state(states[dist.get_rank()])
#: low fires all-ranks-read-all-of-the-data seed-equal-on-all-ranks
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def main(model, dataset):
    torch.manual_seed(42)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    model = DDP(model)
    for step, batch in zip(range(1000), loader):
        model(batch).sum().backward()
#: low silent sampler-divides-the-data
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(model, dataset):
    torch.manual_seed(42)
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(model)
    for step in range(1000):
        model(next(iter(loader))).sum().backward()
#: low silent seed-of-each-rank
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def main(model, dataset):
    torch.manual_seed(42 + dist.get_rank())
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    model = DDP(model)
    for step in range(1000):
        model(next(iter(loader))).sum().backward()
#: fires sampler-seeded-by-rank seed-by-rank
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def sampler(dataset, seed):
    return DistributedSampler(dataset, seed=seed + dist.get_rank())
#: silent sampler-seeded-alike
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def sampler(dataset, seed):
    return DistributedSampler(dataset, seed=seed)
#: low fires epoch-by-rank seed-by-rank
import torch.distributed as dist

def train(sampler, n_epochs):
    for epoch in range(n_epochs):
        sampler.set_epoch(epoch * dist.get_world_size() + dist.get_rank())
#: low silent epoch-for-all
import torch.distributed as dist

def train(sampler, n_epochs):
    for epoch in range(n_epochs):
        sampler.set_epoch(epoch)
#: low fires split-seeded-by-rank seed-by-rank
import torch.distributed as dist
from sklearn.model_selection import train_test_split

def split(rows):
    return train_test_split(rows, test_size=0.1, random_state=dist.get_rank())
#: low silent split-seeded-alike
import torch.distributed as dist
from sklearn.model_selection import train_test_split

def split(rows):
    return train_test_split(rows, test_size=0.1, random_state=0)[dist.get_rank()]
#: low silent gradients-reduced-by-hand
import torch.distributed as dist

def sync_grads(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
#: low fires groups-in-another-order collective-order-by-rank
import torch.distributed as dist

def exchange(x, rows, columns, rank):
    if rank == 0:
        dist.all_reduce(x, group=rows)
        dist.all_reduce(x, group=columns)
    else:
        dist.all_reduce(x, group=columns)
        dist.all_reduce(x, group=rows)
#: low silent groups-in-one-order
import torch.distributed as dist

def exchange(x, y, rows, columns, rank):
    if rank == 0:
        dist.all_reduce(x, group=rows)
        dist.all_reduce(x, group=columns)
    else:
        dist.all_reduce(y, group=rows)
        dist.all_reduce(y, group=columns)
#: low fires backward-skipped-on-its-own-data collective-under-local-condition|local-stop-decision
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model):
        self.model = DDP(model)

    def step(self, batch):
        loss = self.model(batch).mean()
        if torch.isnan(loss):
            return 0.0
        loss.backward()
        return loss.item()
#: low silent backward-on-each-path
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model):
        self.model = DDP(model)

    def step(self, batch):
        loss = self.model(batch).mean()
        if torch.isnan(loss):
            loss = torch.nan_to_num(loss) * 0
        loss.backward()
        return loss.item()
#: fires sends-to-all-before-it-receives all-send-first mix.py
import torch
import torch.distributed as dist


def mix(x, n):
    me = dist.get_rank()
    got = []
    for other in range(n):
        if other == me:
            continue
        dist.send(x, other)
    for other in range(n):
        if other == me:
            continue
        buffer = torch.empty_like(x)
        dist.recv(buffer, other)
        got.append(buffer)
    return got
#: silent the-first-sends-to-all-and-receives-from-all mix.py
import torch
import torch.distributed as dist


def mix(x, n):
    me = dist.get_rank()
    if me != 0:
        dist.recv(x, 0)
        dist.send(x, 0)
        return
    for other in range(1, n):
        dist.send(x, other)
    for other in range(1, n):
        dist.recv(x, other)
#: silent each-in-turn-sends-to-all mix.py
import torch
import torch.distributed as dist


def mix(x, n):
    me = dist.get_rank()
    for one in range(n):
        if one == me:
            for other in range(n):
                if other != me:
                    dist.send(x, other)
        else:
            dist.recv(x, one)
#: silent sends-without-waiting mix.py
import torch
import torch.distributed as dist


def mix(x, n):
    me = dist.get_rank()
    work = []
    for other in range(n):
        if other != me:
            work.append(dist.isend(x, other))
    for other in range(n):
        if other != me:
            buffer = torch.empty_like(x)
            dist.recv(buffer, other)
    for one in work:
        one.wait()
#: fires members-found-by-a-search-for-the-own-rank group-by-rank pairs.py
import torch.distributed as dist


def neighbours(parts):
    me = dist.get_rank()
    n = 0
    while me not in parts[n]:
        n += 1
    return dist.new_group(parts[n])
#: silent a-search-for-something-that-all-know pairs.py
import torch.distributed as dist


def neighbours(parts, wanted):
    n = 0
    while wanted not in parts[n]:
        n += 1
    return dist.new_group(parts[n])
#: fires a-number-with-a-point-on-one-rank type-by-rank count.py
import torch
import torch.distributed as dist


def count(device):
    n = torch.tensor(0 if dist.get_rank() else 1.0, device=device)
    dist.all_reduce(n)
    return n
#: silent numbers-alike-or-a-type count.py
import torch
import torch.distributed as dist


def count(device, rank):
    n = torch.tensor(1 if rank == 0 else 0, device=device)
    m = torch.tensor(1.0 if rank == 0 else 0, dtype=torch.float32, device=device)
    dist.all_reduce(n)
    dist.all_reduce(m)
    return n, m
#: low fires arrays-that-are-gone-on-some-processes collective-under-local-condition|local-stop-decision keep.py
from jax.experimental import multihost_utils


def finish(state):
    if not state.is_deleted():
        return multihost_utils.process_allgather(state)
#: low silent arrays-that-are-gone-by-agreement keep.py
import numpy as np
from jax.experimental import multihost_utils


def finish(state):
    votes = multihost_utils.process_allgather(np.asarray(not state.is_deleted()))
    if votes.all():
        return multihost_utils.process_allgather(state)
#: low fires a-barrier-before-the-engine-of-deepspeed collective-before-set-device train.py
import deepspeed
import torch.distributed as dist


def main(model, args):
    deepspeed.init_distributed()
    dist.barrier()
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    return engine
#: low silent a-barrier-behind-the-engine-of-deepspeed train.py
import deepspeed
import torch.distributed as dist


def main(model, args):
    deepspeed.init_distributed()
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    dist.barrier()
    return engine
