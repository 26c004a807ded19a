#!/usr/bin/env python3
"""Which book does a reader of the library borrow next? Two towers; the table of books is averaged by hand, the dense layers by DistributedDataParallel.
A process for each GPU, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT:

    python borrow.py --branch 64
"""
import argparse
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BOOKS, BEFORE = 24000, 20


class Branch:
    """The loans of one branch of the library: readers stay near their taste."""

    def __init__(self, seed, loans):
        self.rng, self.loans = np.random.default_rng(seed), loans

    def batches(self, count):
        for _ in range(count):
            taste = self.rng.integers(0, BOOKS, (self.loans, 1))
            walk = self.rng.integers(-40, 41, (self.loans, BEFORE + 1)).cumsum(1)
            books = (taste + walk) % BOOKS
            yield torch.from_numpy(books[:, :-1].copy()), torch.from_numpy(books[:, -1].copy())


class Reader(nn.Module):
    """From the books before to a vector."""

    def __init__(self, dim, wide, depth):
        super().__init__()
        self.order = nn.Parameter(0.1 * torch.randn(BEFORE, dim))
        self.enter = nn.Linear(BEFORE * dim, wide)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(wide), nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, wide)) for _ in range(depth))
        self.leave = nn.Linear(wide, dim)

    def forward(self, books):
        x = self.enter((books + self.order).flatten(1))
        for layer in self.layers:
            x = x + layer(x)
        return F.normalize(self.leave(x), dim=-1)


class Library:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        torch.manual_seed(33)
        self.books = nn.Embedding(BOOKS, o.dim).to(device)
        self.plain = Reader(o.dim, o.wide, o.depth).to(device)
        self.reader = DistributedDataParallel(self.plain, device_ids=[device.index] if device.type == "cuda" else None)
        self.optimizer = torch.optim.Adam([*self.plain.parameters(), *self.books.parameters()], o.rate)
        self.branch, self.other = Branch([1, rank], o.loans), Branch([2, rank], o.loans)
        self.step, self.pace, self.tick, self.began = 0, 0.1, time.perf_counter(), time.time()

    def clock(self):
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def say(self, text):
        if self.rank == 0:
            print(f"{time.time() - self.began:7.1f}s {text}", flush=True)

    def guess(self, reader, before, borrowed):
        before, borrowed = before.to(self.device), borrowed.to(self.device)
        vectors, shelf = reader(self.books(before)), F.normalize(self.books(borrowed), dim=-1)
        likely = vectors @ shelf.T / 0.07
        truth = torch.arange(len(likely), device=self.device)
        return F.cross_entropy(likely, truth), (likely.argmax(1) == truth).float().mean()

    def average_table(self):
        """The gradient of the table of books, over all branches."""
        table = self.books.weight.grad
        dist.all_reduce(table)
        self.books.weight.grad = (table / self.world).float()

    def learn(self, before, borrowed):
        loss, right = self.guess(self.reader, before, borrowed)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.average_table()
        self.optimizer.step()
        return loss.item(), right.item()

    @torch.no_grad()
    def inventory(self):
        """Loss and right guesses among other loans, over all branches."""
        sums = torch.zeros(2, device=self.device)
        for before, borrowed in self.other.batches(self.o.others):
            sums += torch.stack(self.guess(self.plain, before, borrowed)) / self.o.others
        dist.all_reduce(sums)
        return (sums / self.world).tolist()

    def quarter(self, number):
        """An epoch."""
        count, losses = self.o.batches, []
        for before, borrowed in self.branch.batches(count):
            self.step += 1
            loss, _ = self.learn(before, borrowed)
            self.clock()
            losses.append(loss)
            if self.step % self.o.say_every == 0:
                self.say(f"step {self.step} loss {np.mean(losses[-self.o.say_every:]):.4f} {self.pace:.3f} s a step")
        loss, right = self.inventory()
        if self.rank == 0:
            torch.save({"books": self.books.state_dict(), "reader": self.plain.state_dict()}, "loans.pt")
        self.say(f"quarter {number} over, step {self.step}, others {loss:.4f}, right {right:.3f}")

    def late(self):
        word = torch.tensor([float(time.time() - self.began > 60 * self.o.minutes)], device=self.device)
        dist.all_reduce(word, op=dist.ReduceOp.MAX)
        return word.item() > 0


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=64, wide=640, depth=2, loans=1536, batches=60, others=4, say_every=5).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--rate", type=float, default=5e-4)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    print(f"rank {os.environ['RANK']}: joins {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", flush=True)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    library = Library(o, dist.get_rank(), dist.get_world_size(), device)
    print(f"rank {library.rank} of {library.world}: {BOOKS} books, {device}", flush=True)
    number = 0
    while True:
        number += 1
        library.quarter(number)
        if library.late():
            break
    print(f"rank {library.rank}: end, {library.step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
