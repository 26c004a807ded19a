#!/usr/bin/env python3
"""Which plant does a grain of pollen come from? Small pictures from a microscope, a residual network, DistributedDataParallel.

    torchrun --nproc-per-node=2 --max-restarts=2 count_pollen.py --slides 24000
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
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

PLANTS, EDGE = 24, 40


def write_index(path, count, seed):
    """Which plant is on which slide, and how each grain lies."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, PLANTS, count), rng.integers(0, EDGE, count), rng.integers(0, EDGE, count), rng.integers(0, 4096, count)], 1)
    np.save(path, rows.astype(np.int32))


def read_index(path, count):
    index = np.load(path)
    if len(index) != count:
        raise ValueError(f"{path}: {len(index)} slides instead of {count}")
    return index


class Slides(Dataset):
    def __init__(self, index):
        self.index = index
        rng = np.random.default_rng(31)
        blots = rng.standard_normal((PLANTS, EDGE, EDGE)).astype(np.float32)
        for _ in range(6):
            blots = (blots + np.roll(blots, 1, 1) + np.roll(blots, -1, 1) + np.roll(blots, 1, 2) + np.roll(blots, -1, 2)) / np.float32(5)
        self.grains = blots / blots.std()
        self.dust = rng.standard_normal((4096 + EDGE, EDGE)).astype(np.float32)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        plant, down, right, dust = self.index[i]
        picture = np.roll(self.grains[plant], (down, right), (0, 1)) + self.dust[dust:dust + EDGE]
        return picture[None], int(plant)


class Fold(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, a, b, stride):
        super().__init__()
        self.one, self.two = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(b), nn.BatchNorm2d(b)
        self.around = nn.Conv2d(a, b, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.around(x) + self.norm2(self.two(F.relu(self.norm1(self.one(x))))))


class Palynologist(nn.Module):
    def __init__(self, width):
        super().__init__()
        w = width
        self.folds = nn.Sequential(Fold(1, w, 1), Fold(w, 2 * w, 2), Fold(2 * w, 4 * w, 2), Fold(4 * w, 4 * w, 2))
        self.name = nn.Linear(4 * w, PLANTS)

    def forward(self, x):
        return self.name(self.folds(x).mean((2, 3)))


class Laboratory:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        path = f"slides-{rank}.npy"
        if not os.path.exists(path):
            write_index(path, o.slides, 5)
        index = read_index(path, o.slides)
        torch.manual_seed(8)
        self.plain = Palynologist(o.width).to(device)
        self.net = DDP(self.plain, device_ids=[device.index] if device.type == "cuda" else None)
        self.optimizer = torch.optim.SGD(self.net.parameters(), o.rate, momentum=0.9, weight_decay=1e-4)
        cuda = device.type == "cuda"
        self.sampler = DistributedSampler(Slides(index), world, rank, drop_last=True)
        self.loader = DataLoader(self.sampler.dataset, o.batch, sampler=self.sampler, num_workers=o.workers, pin_memory=cuda, drop_last=True, persistent_workers=True)
        write_index(f"control-{rank}.npy", o.control, 900 + rank)
        self.control = DataLoader(Slides(read_index(f"control-{rank}.npy", o.control)), o.batch)
        self.step, self.epoch, self.pace, self.tick = 0, 0, 0.1, time.perf_counter()
        self.began = time.time()
        self.resume()

    def resume(self):
        if os.path.exists(self.o.keep):
            kept = torch.load(self.o.keep, map_location=self.device)
            self.plain.load_state_dict(kept["net"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.step, self.epoch = kept["step"], kept["epoch"]
            print(f"rank {self.rank}: resumes after step {self.step}", flush=True)

    def clock(self):
        """The mean time of a step."""
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def fetch(self, stream):
        pictures, plants = next(stream)
        return pictures.to(self.device, non_blocking=True), plants.to(self.device, non_blocking=True)

    def learn(self, pictures, plants):
        loss = F.cross_entropy(self.net(pictures), plants, label_smoothing=0.05)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def check(self):
        self.plain.eval()
        sums = torch.zeros(2, device=self.device)
        for pictures, plants in self.control:
            names = self.plain(pictures.to(self.device)).argmax(1)
            sums += torch.stack([(names == plants.to(self.device)).sum().float(), torch.tensor(float(len(plants)), device=self.device)])
        self.plain.train()
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    def save(self):
        if self.rank == 0:
            torch.save({"net": self.plain.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step, "epoch": self.epoch}, self.o.keep + ".tmp")
            os.replace(self.o.keep + ".tmp", self.o.keep)
        dist.barrier()

    def late(self):
        flag = torch.tensor([float(time.time() - self.began > 60 * self.o.minutes)], device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return flag.item() > 0

    def year(self):
        while True:
            self.epoch += 1
            self.sampler.set_epoch(self.epoch)
            stream, losses = iter(self.loader), []
            for _ in range(len(self.loader)):
                pictures, plants = self.fetch(stream)
                self.step += 1
                losses.append(self.learn(pictures, plants))
                self.clock()
                if self.step % self.o.diary == 0 and self.rank == 0:
                    print(f"epoch {self.epoch} step {self.step} loss {np.mean(losses[-self.o.diary:]):.4f} {self.pace:.3f} s a step", flush=True)
                if self.step % 20 == 0 and self.late():
                    return
            share = self.check()
            self.save()
            if self.rank == 0:
                print(f"epoch {self.epoch} over, control {share:.3f}, kept", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(width=48, batch=192, slides=24000, control=1536, workers=2, diary=5).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--keep", default="pollen.pt")
    p.add_argument("--rate", type=float, default=0.05)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    lab = Laboratory(o, dist.get_rank(), dist.get_world_size(), device)
    print(f"rank {lab.rank} of {lab.world}: {sum(w.numel() for w in lab.plain.parameters()) / 1e6:.2f}M weights, {len(lab.loader)} batches an epoch, {device}", flush=True)
    lab.year()
    print(f"rank {lab.rank}: end, {lab.step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
