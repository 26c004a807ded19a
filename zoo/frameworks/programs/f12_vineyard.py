#!/usr/bin/env python
"""Counts grapes in photos of vines: a U-Net gives a density map, its sum is the count.

torchrun --nproc_per_node=2 count_grapes.py --epochs 50 --batch-size 20
"""
import argparse
import csv
import datetime
import math
import os
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SIZE = 192


@dataclass
class Meter:
    """Mean of the last values."""
    values: list = field(default_factory=list)

    def add(self, value):
        self.values.append(value)
        del self.values[:-50]

    @property
    def mean(self):
        return sum(self.values) / max(1, len(self.values))


class VinePhotos(Dataset):
    """Leaves, and bunches of round grapes. The target is a blob for each grape."""

    def __init__(self, count, first=0):
        self.count, self.first = count, first
        rng = np.random.default_rng(11)
        self.leaves = rng.integers(0, 150, (12, SIZE, SIZE, 3), dtype=np.uint8)
        y, x = np.mgrid[-6:7, -6:7]
        self.blob = np.exp(-(x * x + y * y) / 8).astype(np.float32)
        self.blob /= self.blob.sum()
        self.grape = (self.blob / self.blob.max() * 105).astype(np.uint8)[:, :, None]

    def __len__(self):
        return self.count

    def grapes(self, rng):
        n = int(rng.integers(4, 40))
        middle = rng.integers(40, SIZE - 40, 2)
        return np.clip(middle + rng.normal(0, 16, (n, 2)), 7, SIZE - 8).astype(int)

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        photo = self.leaves[i % 12].copy()
        density = np.zeros((SIZE, SIZE), np.float32)
        for y, x in self.grapes(rng):
            photo[y - 6:y + 7, x - 6:x + 7] += self.grape
            density[y - 6:y + 7, x - 6:x + 7] += self.blob
        return torch.from_numpy(photo).permute(2, 0, 1), torch.from_numpy(density)


class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.GroupNorm(8, b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.GroupNorm(8, b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width, levels):
        super().__init__()
        w = [width * 2 ** i for i in range(levels)]
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip([3] + w[:-1], w))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(w[:-1], w[1:]))
        self.merge = nn.ModuleList(DoubleConv(2 * a, a) for a in w[:-1])
        self.density = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        seen = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            seen.append(x)
        for up, merge, skip in zip(reversed(self.up), reversed(self.merge), reversed(seen[:-1])):
            x = merge(torch.cat([up(x), skip], 1))
        return F.softplus(self.density(x)[:, 0].float() - 5)


def make_loader(dataset, args, train):
    sampler = DistributedSampler(dataset, shuffle=train, drop_last=train)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, num_workers=args.workers, pin_memory=torch.cuda.is_available(), drop_last=train,
                        persistent_workers=args.workers > 0)
    return loader, sampler


def to_device(batch, device):
    photos, density = batch
    photos = photos.to(device, non_blocking=True).float().div_(127.5).sub_(1)
    return photos.contiguous(memory_format=torch.channels_last), density.to(device, non_blocking=True)


def criterion(predicted, density):
    count = F.smooth_l1_loss(predicted.sum((1, 2)), density.sum((1, 2)))
    return 1000 * F.mse_loss(predicted, density) + 0.05 * count


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(args.seed)
        self.model = UNet(args.width, args.levels).to(device, memory_format=torch.channels_last)
        self.ddp = DistributedDataParallel(self.model, device_ids=[device.index] if device.type == "cuda" else None, bucket_cap_mb=10)
        if device.type == "cuda":
            self.ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), args.lr, momentum=0.9, nesterov=True, weight_decay=1e-5)
        self.train_loader, self.sampler = make_loader(VinePhotos(args.photos), args, True)
        self.val_loader, _ = make_loader(VinePhotos(args.val_photos, 10 ** 7), args, False)
        self.meter, self.iteration, self.best, self.began = Meter(), 0, math.inf, time.time()

    def info(self, text):
        if self.rank == 0:
            print(f"{datetime.datetime.now():%H:%M:%S} {text}", flush=True)

    def train_step(self, batch):
        photos, density = to_device(batch, self.device)
        with torch.autocast(self.device.type, torch.bfloat16):
            predicted = self.ddp(photos)
        loss = criterion(predicted, density)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.meter.add(loss.item())

    def average(self, *values):
        packed = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(packed)
        return (packed / self.world).tolist()

    @torch.no_grad()
    def validate(self):
        """Mean error of the count, and the mean count."""
        self.ddp.eval()
        errors, counts = [], []
        for batch in self.val_loader:
            photos, density = to_device(batch, self.device)
            with torch.autocast(self.device.type, torch.bfloat16):
                predicted = self.model(photos)
            errors.append((predicted.sum((1, 2)) - density.sum((1, 2))).abs().mean().item())
            counts.append(predicted.sum((1, 2)).mean().item())
        self.ddp.train()
        return self.average(float(np.mean(errors)), float(np.mean(counts)))

    def save(self, name):
        if self.rank == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "iteration": self.iteration}, name)
            self.info(f"iter {self.iteration} saved {name}")
        dist.barrier()

    def finished(self):
        late, = self.average(float(time.time() - self.began > 60 * self.args.minutes))
        return late > 0

    def fit(self):
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            for batch in self.train_loader:
                self.train_step(batch)
                self.iteration += 1
                if self.iteration % self.args.print_freq == 0:
                    mean, = self.average(self.meter.mean)
                    self.info(f"epoch {epoch} iter {self.iteration} loss {mean:.4f} ({time.time() - self.began:.1f} s)")
                if self.iteration % self.args.val_freq == 0:
                    error, count = self.validate()
                    self.info(f"iter {self.iteration} count off by {error:.2f}, mean {count:.1f}")
                    if self.rank == 0:
                        with open("validation.csv", "a", newline="") as file:
                            csv.writer(file).writerow([self.iteration, error, count])
                    if error < self.best:
                        self.best = error
                        self.save("best.pth")
                if self.iteration % 25 == 0 and self.finished():
                    return


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=48)
    p.add_argument("--levels", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--photos", type=int, default=40000)
    p.add_argument("--val-photos", type=int, default=800)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--print-freq", type=int, default=5)
    p.add_argument("--val-freq", type=int, default=200)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--timeout", type=int, default=900)
    args = p.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=args.timeout))
    trainer = Trainer(args, device)
    weights = sum(w.numel() for w in trainer.model.parameters())
    print(f"rank {trainer.rank}: {weights / 1e6:.2f}M weights, {len(trainer.train_loader)} iterations an epoch, {device}", flush=True)
    trainer.fit()
    trainer.save("last.pth")
    print(f"rank {trainer.rank}: end after {trainer.iteration} iterations", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
