"""Glyphs of invented alphabets from a conditional GAN: two networks under DDP with their own optimizers, processes started by
torch.multiprocessing.spawn."""
import argparse
import os
import queue
import random
import signal
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as Parallel

ALPHABETS, SIDE, NOISE = 16, 32, 64


class Scribe(nn.Module):
    """Draws glyphs; the flourish is used for every second alphabet only."""

    def __init__(self, width):
        super().__init__()
        self.style = nn.Embedding(ALPHABETS, NOISE)
        self.start = nn.Linear(2 * NOISE, 4 * width * 16)
        self.grow = nn.Sequential(nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.GroupNorm(8, 2 * width), nn.ReLU(),
                                  nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.GroupNorm(8, width), nn.ReLU())
        self.flourish = nn.Conv2d(width, width, 3, 1, 1)
        self.ink = nn.ConvTranspose2d(width, 1, 4, 2, 1)

    def forward(self, noise, alphabet, ornate):
        x = self.start(torch.cat([noise, self.style(alphabet)], 1)).unflatten(1, (-1, 4, 4))
        x = self.grow(x)
        if ornate:
            x = x + self.flourish(x).relu()
        return self.ink(x).tanh()


class Judge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
                                  nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten())
        self.style, self.say = nn.Embedding(ALPHABETS, 4 * width * 16), nn.Linear(4 * width * 16, 1)

    def forward(self, glyph, alphabet):
        x = self.look(glyph)
        return self.say(x)[:, 0] + (x * self.style(alphabet)).mean(1)


def strokes(step, rank, count):
    g = torch.Generator().manual_seed(97 * step + rank)
    alphabet = torch.randint(0, ALPHABETS, (count,), generator=g)
    grid = torch.linspace(-2, 2, SIDE)
    angle = alphabet[:, None, None] * 0.39 + 0.2 * torch.randn(count, 1, 1, generator=g)
    line = (grid[None, :, None] * angle.cos() + grid[None, None, :] * angle.sin()).abs()
    return (1 - 2 * (line > 0.3).float())[:, None], alphabet


def contact_sheet(scribe, device, rows):
    """Glyphs of all alphabets as text, for a quick look."""
    with torch.no_grad():
        alphabet = torch.arange(rows, device=device) % ALPHABETS
        drawn = scribe(torch.randn(rows, NOISE, device=device), alphabet, False)
    return "\n".join("".join("#" if v > 0 else "." for v in row) for row in drawn[0, 0, ::4].tolist())


def atelier(rank, o, news):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(o.processes))
    warnings.filterwarnings("once")
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    torch.manual_seed(1)
    only = [device.index] if cuda else None
    scribe = Parallel(Scribe(o.width).to(device), device_ids=only, find_unused_parameters=True)
    critic = Parallel(Judge(o.width).to(device), device_ids=only)
    pens, eyes = torch.optim.Adam(scribe.parameters(), 2e-4, (0.5, 0.99)), torch.optim.Adam(critic.parameters(), 2e-4, (0.5, 0.99))
    began = time.time()
    if rank == 0:
        print(f"{o.processes} processes on {device.type}, {sum(w.numel() for w in scribe.parameters()) / 1e6:.1f} M weights draw", flush=True)
    for step in range(1, o.steps + 1):
        glyph, alphabet = (x.to(device) for x in strokes(step, rank, o.batch))
        noise, ornate = torch.randn(o.batch, NOISE, device=device), step % 2 == 0
        with torch.no_grad():
            fake = scribe.module(noise, alphabet, ornate)
        right = critic(torch.cat([glyph, fake]), torch.cat([alphabet, alphabet]))
        judged = nn.functional.relu(1 - right[: o.batch]).mean() + nn.functional.relu(1 + right[o.batch:]).mean()
        eyes.zero_grad()
        judged.backward()
        eyes.step()
        drawn = -critic.module(scribe(noise, alphabet, ornate), alphabet).mean()
        pens.zero_grad()
        drawn.backward()
        pens.step()
        if step == 1 or step % o.tell == 0:
            both = torch.stack([judged.detach(), drawn.detach()])
            dist.reduce(both, 0)
            if rank == 0:
                news.put((step, *(both / o.processes).tolist()))
                print(f"step {step} eyes {both[0].item() / o.processes:.4f} pens {both[1].item() / o.processes:+.4f} [{time.time() - began:.1f} s]", flush=True)
        if step % o.sheet == 0:
            if rank == 0:
                with open(f"sheet-{step}.txt", "w") as file:
                    file.write(contact_sheet(scribe.module, device, ALPHABETS))
                torch.save({"scribe": scribe.module.state_dict(), "critic": critic.module.state_dict()}, "glyphs.pt")
            dist.barrier()
    dist.barrier()
    if rank == 0:
        news.put(None)
        print(f"{o.steps} steps, done", flush=True)
    dist.destroy_process_group()


def curve(news, path):
    """The first process writes the curve of losses."""
    with open(path, "w") as file:
        while row := news.get():
            file.write(",".join(map(str, row)) + "\n")
            file.flush()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--tell", type=int, default=20)
    p.add_argument("--sheet", type=int, default=100)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    os.environ.setdefault("MASTER_ADDR", "localhost")
    news = mp.get_context("spawn").Queue(maxsize=50)
    job = mp.spawn(atelier, (o, news), nprocs=o.processes, join=False)
    writer = mp.get_context("spawn").Process(target=curve, args=(news, "curve.csv"), daemon=True)
    writer.start()
    while not job.join(timeout=5):
        pass
    writer.join(5)
