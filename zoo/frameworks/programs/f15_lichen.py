#!/usr/bin/env python3
"""How old is a lichen? Learns pictures of lichens by heart (a variational autoencoder), gradients go around in buckets. Starts a process for each GPU:

    python grow.py --ranks 2 --batch 192
"""
import argparse
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

EDGE = 32


class Rocks:
    """Rings of lichens on rock: their size tells the age."""

    def __init__(self, seed, count):
        self.rng, self.count = np.random.default_rng(seed), count
        self.grain = np.random.default_rng(4).standard_normal((1024, EDGE, EDGE)).astype(np.float32)
        y, x = np.mgrid[:EDGE, :EDGE].astype(np.float32) / EDGE - np.float32(0.5)
        self.y, self.x = y[None], x[None]

    def look(self):
        age, down, right = (self.rng.random((3, self.count, 1, 1), dtype=np.float32) - np.float32(0.5))
        far = np.sqrt((self.y - down / 2) ** 2 + (self.x - right / 2) ** 2)
        ring = np.exp(-np.square(far - (age + np.float32(0.7)) / 3) * 200)
        return torch.from_numpy(ring + np.float32(0.1) * self.grain[self.rng.integers(0, 1024, self.count)])[:, None]


class Botanist(nn.Module):
    def __init__(self, width, code):
        super().__init__()
        w, flat = width, 4 * width * 16
        self.see = nn.Sequential(nn.Conv2d(1, w, 5, 2, 2), nn.GELU(), nn.Conv2d(w, 2 * w, 3, 2, 1), nn.GELU(), nn.Conv2d(2 * w, 4 * w, 3, 2, 1), nn.GELU(), nn.Flatten())
        self.mean, self.spread = nn.Linear(flat, code), nn.Linear(flat, code)
        self.grow = nn.Sequential(nn.Linear(code, flat), nn.GELU(), nn.Unflatten(1, (4 * w, 4, 4)), nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1), nn.GELU(),
                                  nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(w, 1, 4, 2, 1))

    def forward(self, pictures, noise):
        seen = self.see(pictures)
        mean, spread = self.mean(seen), self.spread(seen).clamp(-6, 3)
        drawn = self.grow(mean + noise * (spread / 2).exp())
        return drawn, (mean.square() + spread.exp() - spread - 1).sum(1) / 2


class Buckets:
    """Gradients of some weights at a time, in one piece."""

    def __init__(self, net, most, world):
        self.world, self.buckets, size = world, [[]], 0
        for p in reversed(list(net.parameters())):
            if size + p.numel() > most and self.buckets[-1]:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += p.numel()

    def average(self):
        for bucket in self.buckets:
            flat = torch.cat([p.grad.flatten() for p in bucket])
            dist.all_reduce(flat)
            flat /= self.world
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad.copy_(part.view_as(p))


class Field:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        torch.manual_seed(o.seed)
        self.net = Botanist(o.width, o.code).to(device)
        self.buckets = Buckets(self.net, o.bucket, world)
        self.optimizer = torch.optim.Adam(self.net.parameters(), o.rate)
        self.rocks, self.cliff = Rocks([1, rank], o.batch), Rocks([2, rank], o.batch)
        self.chance = torch.Generator(device=device).manual_seed(700 + rank)
        self.step, self.pace, self.tick, self.began = 0, 0.1, time.perf_counter(), time.time()

    def clock(self):
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def error(self, pictures):
        noise = torch.randn(len(pictures), self.o.code, generator=self.chance, device=self.device)
        drawn, surprise = self.net(pictures, noise)
        return F.mse_loss(drawn, pictures, reduction="sum") / len(pictures) + self.o.beta * surprise.mean()

    def learn(self):
        pictures = self.rocks.look()
        loss = self.error(pictures.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.buckets.average()
        size = nn.utils.clip_grad_norm_(self.net.parameters(), 20.0)
        self.optimizer.step()
        return loss.item(), size.item()

    @torch.no_grad()
    def climb(self):
        self.net.eval()
        mean = torch.stack([self.error(self.cliff.look().to(self.device)) for _ in range(self.o.climbs)]).mean()
        self.net.train()
        dist.all_reduce(mean)
        return mean.item() / self.world

    def weight(self):
        """All weights in one number, to compare runs."""
        return sum(p.detach().double().abs().sum().item() for p in self.net.parameters())

    def save(self):
        if self.rank == 0:
            torch.save(self.net.state_dict(), "lichen.pt")
            print(f"step {self.step} saved", flush=True)
        dist.barrier()

    def late(self):
        word = [time.time() - self.began > 60 * self.o.minutes]
        dist.broadcast_object_list(word, src=0)
        return word[0]

    def seasons(self):
        while True:
            self.step += 1
            loss, size = self.learn()
            self.clock()
            if self.step % self.o.tell_every == 0 and self.rank == 0:
                print(f"step {self.step} loss {loss:.3f} gradient {size:.2f} {self.pace:.3f} s a step", flush=True)
            if self.step % self.o.weigh_every == 0:
                print(f"rank {self.rank} step {self.step} weights {self.weight():.6f}", flush=True)
            if self.step % self.o.climb_every == 0:
                value = self.climb()
                if self.rank == 0:
                    print(f"step {self.step} cliff {value:.3f}", flush=True)
            if self.step % self.o.save_every == 0:
                self.save()
            if self.step % 20 == 0 and self.late():
                break


def work(rank, world, o):
    count = torch.cuda.device_count()
    device = torch.device("cuda", rank % count) if count else torch.device("cpu")
    if count:
        if count < world:
            os.environ["NCCL_HOSTID"] = f"n{rank}"
        torch.cuda.set_device(device)
    torch.set_num_threads(2)
    address = f"tcp://127.0.0.1:{os.environ.get('MASTER_PORT', '29700')}"
    dist.init_process_group("nccl" if count else "gloo", init_method=address, rank=rank, world_size=world, timeout=timedelta(seconds=o.timeout))
    field = Field(o, rank, world, device)
    dist.barrier()
    print(f"rank {rank} of {world}: {sum(p.numel() for p in field.net.parameters()) / 1e6:.2f}M weights in {len(field.buckets.buckets)} buckets, {device}", flush=True)
    field.seasons()
    print(f"rank {rank}: end, {field.step} steps", flush=True)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    sizes = dict(ranks=2, width=48, code=192, batch=192, bucket=700000, seed=9, tell_every=5, weigh_every=40, climb_every=120, climbs=5, save_every=200)
    for name, value in sizes.items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--rate", type=float, default=3e-4)
    p.add_argument("--beta", type=float, default=0.5)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    mp.spawn(work, args=(o.ranks, o), nprocs=o.ranks)


if __name__ == "__main__":
    main()
