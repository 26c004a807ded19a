"""Height of waves one hour ahead from the readings of buoys: compiled temporal convolutions under DDP. The readings are one large file that
local rank 0 makes; every worker of every rank maps it."""
import argparse
import contextlib
import logging
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CHANNELS = 24
logging.basicConfig(format="%(asctime)s | %(levelname)-7s | %(message)s", datefmt="%H:%M:%S", level=logging.INFO)


class Windows(Dataset):
    """Windows of the mapped readings; the window's length changes from one block of batches to the next."""

    def __init__(self, path, hours, length):
        self.readings = np.memmap(path, np.float32, "r", shape=(hours, CHANNELS))
        self.length = length

    def __len__(self):
        return (len(self.readings) - self.length - 1) // 4

    def __getitem__(self, i):
        window = torch.from_numpy(np.array(self.readings[4 * i: 4 * i + self.length + 1]))
        return window[:-1].T.contiguous(), window[-1, :1]


class Causal(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad, self.conv = 2 * dilation, nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        a, b = self.conv(F.pad(self.norm(x), (self.pad, 0))).chunk(2, 1)
        return x + a * torch.sigmoid(b)


class Nowcast(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Conv1d(CHANNELS, width, 1)
        self.layers = nn.ModuleList(Causal(width, 2 ** (i % 5)) for i in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x[..., -1])


def make_readings(path, hours):
    rng = np.random.default_rng(6)
    swell = np.sin(np.arange(hours)[:, None] * rng.uniform(0.02, 0.4, CHANNELS)).astype(np.float32)
    (swell + 0.1 * rng.standard_normal((hours, CHANNELS), dtype=np.float32)).tofile(path + ".part")
    os.rename(path + ".part", path)


def device_of(local):
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def run(o):
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = device_of(local)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=o.timeout))
    store = dist.PrefixStore("readings", dist.distributed_c10d._get_default_store())
    if local == 0:
        make_readings("waves.bin", o.hours)
        store.set("ready", "waves.bin")
    store.wait(["ready"], timedelta(seconds=o.timeout))
    torch.manual_seed(2)
    plain = Nowcast(o.width, o.depth).to(device)
    net = DistributedDataParallel(plain, device_ids=[local] if device.type == "cuda" else None, broadcast_buffers=False, bucket_cap_mb=2)
    fast = torch.compile(net, backend=o.compiler, dynamic=False)
    opt = torch.optim.RAdam(net.parameters(), lr=5e-4)
    if rank == 0:
        logging.info("%.2f M parameters, windows of %s hours", sum(w.numel() for w in plain.parameters()) / 1e6, o.lengths)
    step, began, running = 0, time.time(), torch.zeros(2, device=device)
    for epoch in range(o.epochs):
        for length in o.lengths:
            data = Windows("waves.bin", o.hours, length)
            sampler = DistributedSampler(data, world, rank, seed=epoch, drop_last=True)
            for x, y in DataLoader(data, o.batch, sampler=sampler, num_workers=o.workers, drop_last=True, pin_memory=device.type == "cuda"):
                step += 1
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                loss = F.smooth_l1_loss(fast(x), y)
                loss.backward()
                opt.step()
                opt.zero_grad()
                running += torch.stack([loss.detach(), torch.ones((), device=device)])
                if step == 1 or step % o.log_every == 0:
                    dist.all_reduce(running)
                    if rank == 0:
                        logging.info("epoch %d step %d loss %.5f, %.1f s", epoch, step, (running[0] / running[1]).item(), time.time() - began)
                    running.zero_()
        if rank == 0:
            torch.save(plain.state_dict(), "nowcast.pt")
    dist.barrier()
    if rank == 0:
        logging.info("%d steps done", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--hours", type=int, default=160000)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=10)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--lengths", type=int, nargs="+", default=[168])
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--compiler", default="inductor")
    p.add_argument("--timeout", type=int, default=1800)
    run(p.parse_args())
