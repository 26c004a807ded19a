#!/usr/bin/env python3
"""Which sherds belong to the same pot? Point clouds of broken pottery; two views of a sherd must have the same fingerprint. DDP, a thread makes the batches.

    torchrun --nproc-per-node 2 match_sherds.py --pots 64
"""
import argparse
import datetime
import os
import queue
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

POINTS = 32


class Trench:
    """Sherds of turned pots: a profile that is rotated, broken along two angles."""

    def __init__(self, seed, sherds, patches):
        self.rng, self.sherds, self.patches = np.random.default_rng(seed), sherds, patches

    def clay(self, profile, start):
        """Points of sherds [n, points, 3] from their profiles; each view has its own points, noise and orientation."""
        n, count = len(profile), self.patches * POINTS
        height = self.rng.random((n, count), dtype=np.float32)
        angle = start[:, None] + np.float32(0.9) * self.rng.random((n, count), dtype=np.float32)
        radius = np.ones((n, count), np.float32)
        for power in range(profile.shape[1]):
            radius += profile[:, power, None] * np.cos((power + 1) * np.float32(np.pi) * height)
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle), 2 * height], -1)
        points += np.float32(0.01) * self.rng.standard_normal(points.shape, dtype=np.float32)
        turn, _ = np.linalg.qr(self.rng.standard_normal((n, 3, 3)))
        return points @ turn.astype(np.float32)

    def dig(self):
        profile = np.float32(0.25) * self.rng.standard_normal((self.sherds, 5), dtype=np.float32)
        start = np.float32(6.28) * self.rng.random(self.sherds, dtype=np.float32)
        views = np.stack([self.clay(profile, start), self.clay(profile, start)])
        return torch.from_numpy(views.reshape(2, self.sherds, self.patches, 3 * POINTS))


class Digger(threading.Thread):
    """Digs ahead of the training."""

    def __init__(self, trench):
        super().__init__(daemon=True, name="digger")
        self.trench, self.tray, self.dug = trench, queue.Queue(maxsize=4), 0

    def run(self):
        while True:
            views = self.trench.dig()
            self.dug += 1
            self.tray.put(views)

    def take(self):
        return self.tray.get()


class Fingerprint(nn.Module):
    def __init__(self, dim, heads, depth, out):
        super().__init__()
        self.patch = nn.Sequential(nn.Linear(3 * POINTS, dim), nn.GELU(), nn.Linear(dim, dim))
        layers = [nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True) for _ in range(depth)]
        self.layers = nn.Sequential(*layers)
        self.out = nn.Linear(dim, out)

    def forward(self, patches):
        return F.normalize(self.out(self.layers(self.patch(patches)).mean(1)), dim=-1)


def agreement(prints):
    """InfoNCE between the two views, and the share of sherds that find their other view."""
    one, two = prints.chunk(2)
    alike = one @ two.T / 0.1
    truth = torch.arange(len(one), device=one.device)
    loss = (F.cross_entropy(alike, truth) + F.cross_entropy(alike.T, truth)) / 2
    return loss, (alike.argmax(1) == truth).float().mean()


@torch.no_grad()
def museum(net, o, rank, world, device):
    """How many sherds of a drawer find their partner."""
    drawer = Trench(5000 + rank, o.sherds, o.patches)
    net.eval()
    found = []
    for _ in range(o.drawers):
        found.append(agreement(net(drawer.dig().flatten(0, 1).to(device)))[1])
    net.train()
    share = torch.stack(found).mean()
    dist.all_reduce(share)
    return share.item() / world


def campaign(o, rank, world, device):
    torch.manual_seed(41)
    net = Fingerprint(o.dim, o.heads, o.depth, 128).to(device)
    rate = o.rate
    ddp = DDP(net, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(ddp.parameters(), rate)
    digger = Digger(Trench([7, rank], o.sherds, o.patches))
    digger.start()
    print(f"rank {rank}: {o.sherds} sherds on {device}", flush=True)
    began, step, day = time.time(), 0, 0
    while True:
        day += 1
        trays = o.trays
        for tray in range(trays):
            step += 1
            views = digger.take()
            prints = ddp(views.flatten(0, 1).to(device, non_blocking=True))
            loss, right = agreement(prints)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % o.diary == 0:
                stats = torch.stack([loss.detach(), right])
                dist.all_reduce(stats)
                if rank == 0:
                    print(f"step {step} loss {stats[0].item() / world:.4f} found {stats[1].item() / world:.3f} {time.time() - began:.1f} s", flush=True)
        share = museum(net, o, rank, world, device)
        if rank == 0:
            torch.save(net.state_dict(), "fingerprint.pt")
            print(f"day {day} over, museum {share:.3f}", flush=True)
        evening = torch.tensor([float(time.time() - began > 60 * o.minutes)], device=device)
        dist.all_reduce(evening, op=dist.ReduceOp.MAX)
        if evening.item():
            return step


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=512, heads=8, depth=4, sherds=160, patches=32, trays=80, diary=5, drawers=4).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--rate", type=float, default=2e-4)
    p.add_argument("--minutes", type=float, default=2.1)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=o.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = campaign(o, rank, world, device)
    print(f"rank {rank}: end, {steps} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
