#!/usr/bin/env python3
"""Goes on folding: a decoder over the creases of paper models. Every layer is sharded (FSDP2), checkpoints by torch.distributed.checkpoint.

    torchrun --nproc-per-node 4 fold.py --shelf shelf
"""
import argparse
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

CREASES = 640


class Paper:
    """Sequences of creases: mountains and valleys come back after a model's own period."""

    def __init__(self, seed, sheets, length):
        self.rng, self.sheets, self.length = np.random.default_rng(seed), sheets, length

    def sheet(self):
        period = self.rng.integers(5, 40, (self.sheets, 1))
        start = self.rng.integers(0, CREASES, (self.sheets, 1))
        along = np.arange(self.length + 1)
        creases = (start + 17 * (along % period)) % CREASES
        slips = self.rng.random(creases.shape) < 0.05
        return torch.from_numpy(np.where(slips, self.rng.integers(0, CREASES, creases.shape), creases))


class Pleat(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.flat, self.flatter = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.turn, self.press = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.open, self.close = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.turn(self.flat(x)).split(x.shape[-1], -1))
        x = x + self.press(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.close(F.gelu(self.open(self.flatter(x))))


class Folder(nn.Module):
    def __init__(self, dim, heads, depth, length):
        super().__init__()
        self.crease, self.place = nn.Embedding(CREASES, dim), nn.Embedding(length, dim)
        self.pleats = nn.ModuleList(Pleat(dim, heads) for _ in range(depth))
        self.last, self.head = nn.LayerNorm(dim), nn.Linear(dim, CREASES, bias=False)

    def forward(self, creases):
        x = self.crease(creases) + self.place.weight[:creases.shape[1]]
        for pleat in self.pleats:
            x = pleat(x)
        return self.head(self.last(x))


class Workshop:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        torch.manual_seed(50)
        self.net = Folder(o.dim, o.heads, o.depth, o.length).to(device)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for number, pleat in enumerate(self.net.pleats):
            if o.compile:
                pleat = self.net.pleats[number] = torch.compile(pleat)
            fully_shard(pleat, mp_policy=policy)
        fully_shard(self.net, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), o.rate, betas=(0.9, 0.95))
        self.paper, self.waste = Paper([1, rank], o.sheets, o.length), Paper([2, rank], o.sheets, o.length)
        self.step, self.pace, self.tick, self.began = 0, 0.1, time.perf_counter(), time.time()

    def say(self, text):
        if self.rank == 0:
            print(f"[{time.time() - self.began:6.1f} s] {text}", flush=True)

    def clock(self):
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def error(self, sheets):
        sheets = sheets.to(self.device)
        return F.cross_entropy(self.net(sheets[:, :-1]).flatten(0, 1).float(), sheets[:, 1:].flatten())

    def fold(self):
        sheets = self.paper.sheet()
        loss = self.error(sheets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    @torch.no_grad()
    def judge(self):
        self.net.eval()
        mean = torch.stack([self.error(self.waste.sheet()) for _ in range(self.o.judges)]).mean()
        self.net.train()
        dist.all_reduce(mean)
        return mean.item() / self.world

    def shelve(self):
        net, optimizer = get_state_dict(self.net, self.optimizer)
        folder = os.path.join(self.o.shelf, f"{self.step}")
        dcp.save({"net": net, "optimizer": optimizer}, checkpoint_id=folder)
        if self.rank == 0:
            with open(os.path.join(self.o.shelf, "newest"), "w") as file:
                file.write(folder)
        self.say(f"step {self.step} on the shelf")

    def late(self):
        word = torch.tensor([int(time.time() - self.began > 60 * self.o.minutes)], dtype=torch.int32, device=self.device)
        dist.broadcast(word, 0)
        return word.item() == 1

    def work(self):
        while True:
            self.step += 1
            loss = self.fold()
            self.clock()
            if self.step % self.o.say_every == 0:
                mean = torch.tensor(loss, device=self.device)
                dist.all_reduce(mean)
                self.say(f"step {self.step} loss {mean.item() / self.world:.4f} {self.pace:.3f} s a step")
            if self.step % self.o.judge_every == 0:
                self.say(f"step {self.step} judged {self.judge():.4f}")
            if self.step % self.o.shelve_every == 0:
                self.shelve()
            if self.step % 20 == 0 and self.late():
                return


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=384, heads=6, depth=3, length=160, sheets=96, say_every=5, judge_every=120, judges=4, shelve_every=200).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--shelf", default="shelf")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--rate", type=float, default=6e-4)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    os.makedirs(o.shelf, exist_ok=True)
    shop = Workshop(o, dist.get_rank(), dist.get_world_size(), device)
    own = sum(w.to_local().numel() for w in shop.net.parameters())
    print(f"rank {shop.rank} of {shop.world}: {own / 1e6:.2f}M weights here, {device}", flush=True)
    shop.work()
    print(f"rank {shop.rank}: end, {shop.step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
