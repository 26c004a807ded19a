"""Voices by flow matching: a network learns the velocity from noise to log-mel frames of sung vowels. Lightning Fabric with DDP, an average of the
weights for sampling, checkpoints from which a restart goes on."""
import argparse
import math
import os
import sys
import time
from copy import deepcopy
from datetime import timedelta

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SINGERS, BANDS, FRAMES, RATE = 40, 64, 96, 16000


class Songs(Dataset):
    """Vowels of singers who do not exist, as log-mel frames."""

    def __init__(self, count, seed, rank):
        self.count, self.seed, self.rank = count, seed, rank
        edges = torch.linspace(0, math.log(1 + 8000 / 700), BANDS + 2).expm1() * 700
        bins = torch.linspace(0, RATE / 2, 257)
        rising, falling = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
        self.mel = torch.minimum(rising, falling).clamp_min(0)
        self.window = torch.hann_window(512)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        singer = int(torch.randint(0, SINGERS, (), generator=g))
        t = torch.arange((FRAMES - 1) * 160) / RATE
        pitch = (90 + 7 * singer) * (1 + 0.02 * torch.sin(6.28 * (4 + torch.rand((), generator=g)) * t))
        phase = 6.2832 * torch.cumsum(pitch / RATE, 0)
        wave = sum(torch.sin(k * phase) / k for k in range(1, 9)) + 0.01 * torch.randn(len(t), generator=g)
        power = torch.stft(wave, 512, 160, window=self.window, return_complex=True).abs() ** 2
        frames = (self.mel.T @ power + 1e-4).log()
        return (frames[:, :FRAMES] - 1.0) / 4.0, singer


class Block(nn.Module):
    def __init__(self, width, stretch):
        super().__init__()
        self.norm, self.given = nn.GroupNorm(8, width), nn.Linear(width, 2 * width)
        self.wide, self.back = nn.Conv1d(width, 2 * width, 3, padding=stretch, dilation=stretch), nn.Conv1d(width, width, 1)

    def forward(self, x, c):
        scale, shift = self.given(c)[:, :, None].chunk(2, 1)
        return x + self.back(F.glu(self.wide(self.norm(x) * (1 + scale) + shift), 1))


class Velocity(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.singer, self.time = nn.Embedding(SINGERS, width), nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.enter, self.leave = nn.Conv1d(BANDS, width, 1), nn.Conv1d(width, BANDS, 1)
        self.blocks = nn.ModuleList(Block(width, 2 ** (i % 4)) for i in range(depth))
        self.register_buffer("waves", torch.exp(torch.linspace(0, 5, 16)))

    def forward(self, x, t, singer):
        angle = t[:, None] * self.waves
        c = self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.singer(singer)
        x = self.enter(x)
        for block in self.blocks:
            x = block(x, c)
        return self.leave(x)


def matching(net, frames, singer):
    t = torch.rand(len(frames), device=frames.device)
    noise = torch.randn_like(frames)
    at = t[:, None, None]
    return F.mse_loss(net((1 - at) * noise + at * frames, t, singer), frames - noise)


class Average:
    """The average of the weights, with which voices are sampled."""

    def __init__(self, net, keep=0.999):
        self.net, self.keep = deepcopy(net).eval().requires_grad_(False), keep

    @torch.no_grad()
    def update(self, net):
        for mine, new in zip(self.net.parameters(), net.parameters()):
            mine.lerp_(new, 1 - self.keep)


@torch.no_grad()
def listen(fabric, average, loader, steps=8):
    """Samples voices of the singers in `loader` and compares the mean spectrum with the real one."""
    far = torch.zeros(BANDS, FRAMES, device=fabric.device)
    for frames, singer in loader:
        x = torch.randn_like(frames)
        for i in range(steps):
            x = x + average.net(x, torch.full((len(x),), i / steps, device=x.device), singer) / steps
        far += (x.mean(0) - frames.mean(0)).abs()
    far = fabric.all_reduce(far / len(loader), reduce_op="mean")
    return far.mean().item()


def say(fabric, text):
    if fabric.is_global_zero:
        sys.stderr.write(time.strftime("%H:%M:%S ") + text + "\n")


def main(o):
    cuda = torch.cuda.is_available()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    devices = min(torch.cuda.device_count(), world) if cuda else world
    fabric = Fabric(accelerator="cuda" if cuda else "cpu", devices=devices, num_nodes=world // devices, precision="bf16-mixed" if cuda else "32-true",
                    strategy=DDPStrategy(timeout=timedelta(seconds=o.timeout)))
    fabric.launch()
    fabric.seed_everything(11)
    plain = Velocity(o.width, o.depth)
    net, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), 3e-4))
    average = Average(net.module)
    held = Songs(256, 2, fabric.global_rank)
    songs = Songs(o.songs, 1, fabric.global_rank)
    loader = DataLoader(songs, o.batch, sampler=DistributedSampler(songs, fabric.world_size, fabric.global_rank, drop_last=True), num_workers=o.workers, drop_last=True)
    unheard = DataLoader(held, 32, sampler=DistributedSampler(held, fabric.world_size, fabric.global_rank), num_workers=0)
    loader, unheard = fabric.setup_dataloaders(loader, unheard, use_distributed_sampler=False)
    state = {"net": net, "optimizer": optimizer, "average": average.net, "step": 0}
    if o.resume and os.path.exists("voices.ckpt"):
        fabric.load("voices.ckpt", state)
        say(fabric, f"goes on from step {state['step']}")
    fabric.seed_everything(12 + fabric.global_rank)
    say(fabric, f"{fabric.world_size} processes, {sum(w.numel() for w in plain.parameters()) / 1e6:.1f} M weights")
    step, epoch, began = state["step"], 0, time.time()
    while step < o.steps:
        loader.sampler.set_epoch(epoch)
        epoch += 1
        for frames, singer in loader:
            step += 1
            with fabric.no_backward_sync(net, enabled=step % o.accumulate != 0):
                loss = matching(net, frames, singer)
                fabric.backward(loss / o.accumulate)
            if step % o.accumulate == 0:
                fabric.clip_gradients(net, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
                average.update(net.module)
            if step <= 3 or step % o.every == 0:
                say(fabric, f"step {step} flow {loss.item():.4f} ({time.time() - began:.1f} s)")
            if step % o.listen == 0:
                far = listen(fabric, average, unheard)
                say(fabric, f"step {step} voices are {far:.4f} away")
            if step % o.save == 0:
                state["step"] = step
                fabric.save("voices.ckpt", state)
                say(fabric, f"step {step} saved")
            if step >= o.steps:
                break
    fabric.barrier()
    say(fabric, "all sung")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--songs", type=int, default=6000)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--listen", type=int, default=50)
    p.add_argument("--save", type=int, default=50)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--timeout", type=int, default=1800)
    main(p.parse_args())
