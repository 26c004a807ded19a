#!/usr/bin/env python3
"""How does steel cool in its mould? Two halves of a network on two GPUs; parts of a batch go forward as messages, gradients come back (a pipeline by hand).

    torchrun --nproc-per-node 2 cool.py --parts 4
"""
import argparse
import logging
import os
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SENSORS, BINS = 24, 200000
log = logging.getLogger("cool")


class Moulds:
    """Temperatures of sensors over time, and those of the next hour. Both halves draw the same ones."""

    def __init__(self, seed, rows, length):
        self.rng, self.rows, self.length = np.random.default_rng(seed), rows, length
        fixed = np.random.default_rng(3)
        self.noise = fixed.standard_normal((8192, SENSORS)).astype(np.float32)
        self.depth = fixed.uniform(0.3, 1.5, SENSORS).astype(np.float32)

    def pour(self):
        start = self.rng.integers(0, len(self.noise) - self.length - 1, self.rows)
        speed = self.rng.uniform(0.5, 2.0, (self.rows, 1, 1)).astype(np.float32)
        hours = np.arange(self.length + 1, dtype=np.float32)[None, :, None] / self.length
        heat = np.exp(-speed * hours * self.depth) * np.float32(1500) + np.float32(8) * self.noise[start[:, None] + np.arange(self.length + 1)]
        heat = np.maximum(heat, np.float32(20))
        return torch.from_numpy(heat[:, :-1] / np.float32(1000)), torch.from_numpy(heat[:, 1:])


def target_of(heat):
    """Temperatures on the scale that the loss uses."""
    return torch.log(heat / 500)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Half(nn.Module):
    def __init__(self, o, first):
        super().__init__()
        self.enter = nn.Linear(SENSORS, o.dim) if first else nn.Identity()
        self.layers = nn.Sequential(*[Layer(o.dim, o.heads) for _ in range(o.depth)])
        self.leave = nn.Identity() if first else nn.Sequential(nn.LayerNorm(o.dim), nn.Linear(o.dim, SENSORS))

    def forward(self, x):
        return self.leave(self.layers(self.enter(x)))


class Foundry:
    def __init__(self, o, rank, device):
        self.o, self.rank, self.device = o, rank, device
        torch.manual_seed(60 + rank)
        self.net = Half(o, rank == 0).to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), o.rate)
        self.moulds, self.samples = Moulds(1, o.rows, o.length), Moulds(2, o.rows, o.length)
        self.hist = torch.zeros(BINS, device=device)
        self.pace, self.tick, self.began = 0.1, time.perf_counter(), time.time()

    def clock(self):
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def ladle(self):
        return torch.empty(self.o.rows, self.o.length, self.o.dim, device=self.device)

    def first_half(self, batches):
        """All parts forward, then their gradients, in the same order."""
        sent = []
        for past, _ in batches:
            hidden = self.net(past.to(self.device))
            dist.send(hidden.detach(), 1)
            sent.append(hidden)
        for hidden in sent:
            gradient = self.ladle()
            dist.recv(gradient, 1)
            hidden.backward(gradient)
        return 0.0

    def second_half(self, batches):
        waiting, total = [], 0.0
        for _, future in batches:
            hidden = self.ladle()
            dist.recv(hidden, 0)
            hidden.requires_grad_()
            error = self.net(hidden) - target_of(future.to(self.device))
            loss = error.square().mean() / len(batches)
            loss.backward()
            self.hist += torch.histc(error.detach(), BINS, -3, 3)
            waiting.append(hidden.grad)
            total += loss.detach()
        for gradient in waiting:
            dist.send(gradient, 0)
        return total.item()

    def squares(self):
        total = torch.stack([p.grad.square().sum() for p in self.net.parameters()]).sum()
        dist.all_reduce(total)
        return total

    def errors(self):
        """How often which error was, known to both halves."""
        seen = self.hist.clone()
        dist.all_reduce(seen)
        self.hist.zero_()
        return seen

    def step(self, number):
        batches = [self.moulds.pour() for _ in range(self.o.parts)]
        loss = self.first_half(batches) if self.rank == 0 else self.second_half(batches)
        squares, seen = self.squares(), self.errors()
        scale = (self.o.clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for p in self.net.parameters():
            p.grad.mul_(scale)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.size = squares.sqrt().item()
        self.middle = seen[BINS // 2 - 3000:BINS // 2 + 3000].sum().item() / max(1.0, seen.sum().item())
        return loss

    @torch.no_grad()
    def control(self):
        """Mean error in degrees on other castings."""
        errors = []
        for _ in range(self.o.controls):
            past, future = self.samples.pour()
            if self.rank == 0:
                dist.send(self.net(past.to(self.device)), 1)
            else:
                hidden = self.ladle()
                dist.recv(hidden, 0)
                errors.append((500 * self.net(hidden).exp() - future.to(self.device)).abs().mean().item())
        return sum(errors) / max(1, len(errors))

    def late(self):
        word = torch.tensor([float(time.time() - self.began > 60 * self.o.minutes)], device=self.device)
        dist.all_reduce(word, op=dist.ReduceOp.MAX)
        return word.item() > 0

    def work(self):
        number = 0
        while True:
            number += 1
            loss = self.step(number)
            self.clock()
            if self.rank == 1 and number % self.o.log_every == 0:
                log.info("step %d loss %.5f gradient %.3f near %.3f, %.3f s a step", number, loss, self.size, self.middle, self.pace)
            if number % self.o.control_every == 0:
                error = self.control()
                if self.rank == 1:
                    log.info("step %d off by %.1f degrees", number, error)
            if number % self.o.save_every == 0:
                torch.save(self.net.state_dict(), f"half-{self.rank}.pt")
                dist.barrier()
            if number % 20 == 0 and self.late():
                return number


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=256, heads=4, depth=3, rows=64, length=64, parts=4, log_every=5, control_every=120, controls=6, save_every=200).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--rate", type=float, default=3e-4)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    foundry = Foundry(o, dist.get_rank(), device)
    dist.barrier()
    log.info("half %d of 2: %.2fM weights on %s, %d parts", foundry.rank, sum(w.numel() for w in foundry.net.parameters()) / 1e6, device, o.parts)
    steps = foundry.work()
    log.info("half %d: end, %d steps", foundry.rank, steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
