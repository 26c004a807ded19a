"""What grows on a field: a transformer over a year of satellite readings of single pixels. Weights are sharded with fully_shard, checkpoints are
written in the background with torch.distributed.checkpoint.

torchrun --nproc-per-node 2 phenology.py --out runs/a
"""
import argparse
import math
import os
import shutil
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CROPS = ["wheat", "barley", "maize", "rape", "beet", "potato", "meadow", "vine", "sunflower", "fallow"]
BANDS, DATES = 12, 144


class Pixels(IterableDataset):
    """Readings of a region: each crop has its green season, clouds hide some dates."""

    def __init__(self, region, batch, batches=None):
        self.region, self.batch, self.batches = region, batch, batches
        rng = np.random.default_rng(2)
        self.peak, self.width = rng.uniform(0.2, 0.8, len(CROPS)), rng.uniform(0.03, 0.15, len(CROPS))
        self.colour = rng.normal(0, 1, (len(CROPS), BANDS)).astype(np.float32)

    def draw(self, rng):
        crop = rng.integers(len(CROPS), size=self.batch)
        day = np.linspace(0, 1, DATES, dtype=np.float32)
        shift = rng.normal(0, 0.02, (self.batch, 1))
        green = np.exp(-((day - self.peak[crop][:, None] - shift) / self.width[crop][:, None]) ** 2).astype(np.float32)
        noise = rng.standard_normal((self.batch, DATES, BANDS), dtype=np.float32)
        readings = green[:, :, None] * self.colour[crop][:, None] + noise * np.float32(0.5)
        clouds = rng.random((self.batch, DATES)) < 0.3
        readings[clouds] = 3.0
        return torch.from_numpy(readings), torch.from_numpy(clouds), torch.from_numpy(crop)

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng([self.region, info.id if info else 0])
        n = 0
        while self.batches is None or n < self.batches:
            yield self.draw(rng)
            n += 1


class Layer(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.inner, self.outer = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.outer(F.gelu(self.inner(self.ln2(x))))


class SeasonNet(nn.Module):
    def __init__(self, dim, depth, heads, hidden):
        super().__init__()
        self.read = nn.Linear(BANDS, dim)
        self.cloud = nn.Embedding(2, dim)
        self.date = nn.Parameter(0.02 * torch.randn(DATES, dim))
        self.layers = nn.ModuleList(Layer(dim, heads, hidden) for _ in range(depth))
        self.norm, self.crop = nn.LayerNorm(dim), nn.Linear(dim, len(CROPS))

    def forward(self, readings, clouds):
        x = self.read(readings) + self.cloud(clouds.long()) + self.date
        for layer in self.layers:
            x = layer(x)
        return self.crop(self.norm(x).mean(1))


def shard(model, mesh):
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for one, two in zip(model.layers, list(model.layers)[1:]):
        one.set_modules_to_forward_prefetch([two])
    return model


class Keeper:
    """Checkpoints in the background: at most one is being written."""

    def __init__(self, folder, model, optimizer, rank):
        self.folder, self.model, self.optimizer, self.rank, self.writing = folder, model, optimizer, rank, None
        os.makedirs(folder, exist_ok=True)

    def save(self, step):
        self.wait()
        options = StateDictOptions(cpu_offload=False)
        optimizer = get_optimizer_state_dict(self.model, self.optimizer, options=options)
        state = {"model": get_model_state_dict(self.model, options=options), "optimizer": optimizer, "step": step}
        self.writing = dcp.async_save(state, checkpoint_id=os.path.join(self.folder, f"step-{step}"))
        if self.rank == 0:
            old = sorted((int(name[5:]) for name in os.listdir(self.folder) if name.startswith("step-")), reverse=True)[2:]
            for number in old:
                shutil.rmtree(os.path.join(self.folder, f"step-{number}"), ignore_errors=True)

    def wait(self):
        if self.writing is not None:
            self.writing.result()
            self.writing = None

    def resume(self, step):
        state = {"model": get_model_state_dict(self.model), "optimizer": get_optimizer_state_dict(self.model, self.optimizer), "step": 0}
        dcp.load(state, checkpoint_id=os.path.join(self.folder, f"step-{step}"))
        set_model_state_dict(self.model, state["model"])
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        return state["step"]


def accuracy(model, loader, device):
    """Share of right pixels for each crop, over all ranks."""
    model.eval()
    right, there = torch.zeros(len(CROPS), device=device), torch.zeros(len(CROPS), device=device)
    with torch.no_grad():
        for readings, clouds, crop in loader:
            crop = crop.to(device)
            guess = model(readings.to(device), clouds.to(device)).argmax(1)
            right += torch.bincount(crop[guess == crop], minlength=len(CROPS))
            there += torch.bincount(crop, minlength=len(CROPS))
    counts = torch.stack([right, there])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1].clamp(min=1)).tolist()


def rate_at(step, args):
    return args.lr * min(1.0, step / 150) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, step / 20000)))


def train(args, model, optimizer, keeper, loader, tests, device):
    rank, world = dist.get_rank(), dist.get_world_size()
    began = time.time()
    step = keeper.resume(args.resume) if args.resume else 0
    for readings, clouds, crop in loader:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, args)
        readings, clouds, crop = (x.to(device, non_blocking=True) for x in (readings, clouds, crop))
        loss = F.cross_entropy(model(readings, clouds).float(), crop, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        if not math.isfinite(norm.item()) and rank == 0:
            print(f"step {step}: the gradient is {norm.item()}", flush=True)
        if step % args.log == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                now = time.time() - began
                print(f"step {step} loss {mean.item() / world:.4f} norm {norm.item():.2f} lr {rate_at(step, args):.1e} {now:.1f} s", flush=True)
        if step % args.test == 0:
            shares = accuracy(model, tests, device)
            if rank == 0:
                worst = min(range(len(CROPS)), key=shares.__getitem__)
                print(f"step {step} accuracy {sum(shares) / len(shares):.3f}, worst {CROPS[worst]} {shares[worst]:.3f}", flush=True)
        if step % args.save == 0:
            keeper.save(step)
            if rank == 0:
                print(f"step {step} checkpoint begun", flush=True)
        if step % 20 == 0:
            end = torch.tensor(int(time.time() - began > 60 * args.minutes), device=device)
            dist.broadcast(end, 0)
            if end.item():
                break
    keeper.wait()
    return step


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("dim", 768), ("depth", 10), ("heads", 12), ("hidden", 3072), ("batch", 128), ("workers", 2), ("log", 10), ("test", 250),
                        ("save", 300), ("resume", 0), ("timeout", 900)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--out", default="run")
    parser.add_argument("--minutes", type=float, default=1.4)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (world,), mesh_dim_names=("shard",))
    torch.manual_seed(29)
    model = shard(SeasonNet(args.dim, args.depth, args.heads, args.hidden).to(device), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=0.05)
    own = sum(p.to_local().numel() for p in model.parameters())
    print(f"rank {rank} of {world} keeps {own / 1e6:.1f}M weights on {device}", flush=True)
    keeper = Keeper(args.out, model, optimizer, rank)
    loader = DataLoader(Pixels(rank, args.batch), None, num_workers=args.workers, pin_memory=cuda)
    tests = DataLoader(Pixels(1000 + rank, args.batch, 10), None)
    step = train(args, model, optimizer, keeper, loader, tests, device)
    print(f"rank {rank}: {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
