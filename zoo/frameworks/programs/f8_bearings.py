"""Damage of bearings from vibration: one-dimensional convolutions under DistributedDataParallel with gradient accumulation. A reader that fails
in a data-loader worker is started again from the batch that it failed at."""
import argparse
import contextlib
import logging
import os
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

CLASSES, SAMPLES = 10, 1024
log = logging.getLogger("bearings")


class Recordings(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 70001 + i)
        damage = int(torch.randint(0, CLASSES, (), generator=g))
        t = torch.arange(SAMPLES) / SAMPLES
        wave = torch.sin(6.283 * (20 + 9 * damage) * t) + 0.8 * torch.randn(SAMPLES, generator=g)
        return wave[None], damage


class Feeder:
    """The batches of one rank in one epoch."""

    def __init__(self, data, batch, rank, world, workers, cuda):
        self.data, self.batch, self.rank, self.world, self.workers, self.cuda = data, batch, rank, world, workers, cuda

    def plan(self, epoch):
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(epoch)).tolist()
        mine = order[self.rank:: self.world][: len(order) // self.world]
        return [mine[i: i + self.batch] for i in range(0, len(mine) - self.batch + 1, self.batch)]

    def __call__(self, epoch):
        left = self.plan(epoch)
        while left:
            loader = iter(DataLoader(self.data, batch_sampler=left, num_workers=self.workers, pin_memory=self.cuda))
            try:
                for batch in loader:
                    left = left[1:]
                    yield batch
            except OSError:
                traceback.print_exc()
                log.warning("rank %d: a reader failed, %d batches are left, starting it again", self.rank, len(left))


def block(a, b):
    return nn.Sequential(nn.Conv1d(a, b, 9, 2, 4), nn.BatchNorm1d(b), nn.ReLU())


class Ear(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(block(1, width), block(width, 2 * width), block(2 * width, 2 * width), block(2 * width, 4 * width))
        self.out = nn.Linear(4 * width, CLASSES)

    def forward(self, wave):
        return self.out(self.layers(wave).mean(2))


@torch.no_grad()
def validate(net, data, o, rank, world, device):
    net.eval()
    table = torch.zeros(CLASSES, CLASSES, device=device)
    mine = list(range(rank, len(data), world))
    for i in range(0, len(mine), o.batch):
        wave, damage = (torch.stack([torch.as_tensor(part) for part in parts]).to(device) for parts in zip(*(data[j] for j in mine[i: i + o.batch])))
        said = net(wave).argmax(1)
        seen = torch.zeros_like(table)
        seen.index_put_((damage, said), torch.ones((), device=device), accumulate=True)
        dist.all_reduce(seen)
        table += seen
    net.train()
    return (table.diag().sum() / table.sum()).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--recordings", type=int, default=12800)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s", datefmt="%H:%M:%S")
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    torch.manual_seed(0)
    ear = Ear(o.width).to(device)
    net = DDP(torch.compile(ear) if o.compile else ear, device_ids=[local] if cuda else None, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    train, held = Recordings(o.recordings, 1), Recordings(640, 2)
    feeder = Feeder(train, o.batch, rank, world, o.workers, cuda)
    if rank == 0:
        log.info("%d parameters, %d recordings, %d ranks", sum(w.numel() for w in net.parameters()), len(train), world)
    updates, began = 0, time.time()
    for epoch in range(o.epochs):
        for number, (wave, damage) in enumerate(feeder(epoch), 1):
            wave, damage = wave.to(device, non_blocking=True), damage.to(device, non_blocking=True)
            last = number % o.accumulate == 0
            with contextlib.nullcontext() if last else net.no_sync():
                loss = F.cross_entropy(net(wave), damage)
                (loss / o.accumulate).backward()
            if not last:
                continue
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if updates == 1 or updates % o.log_every == 0:
                shown = loss.detach().clone()
                dist.all_reduce(shown)
                energy = wave.pow(2).mean((0, 1))
                dist.all_reduce(energy)
                if rank == 0:
                    log.info("epoch %d update %d loss %.4f energy %.3f %.1f s", epoch, updates, shown.item() / world, energy.mean().item() / world, time.time() - began)
        accuracy = validate(net.module, held, o, rank, world, device)
        if rank == 0:
            log.info("epoch %d accuracy %.4f", epoch, accuracy)
            torch.save({"net": ear.state_dict(), "epoch": epoch}, "ear.pt")
        dist.barrier()
    if rank == 0:
        log.info("training is over, %d updates", updates)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
