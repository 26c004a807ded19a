"""Which pitch comes next? A transformer over the pitches that a batter saw, with the pitcher's name. DistributedDataParallel:

    torchrun --nproc-per-node=2 innings.py --season 400000
"""
import argparse
import contextlib
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

KINDS = ["fastball", "sinker", "cutter", "slider", "sweeper", "curve", "knuckle-curve", "change-up", "splitter", "screwball", "forkball", "eephus"]
ZONES, PITCHES = 14, 49


def hired():
    """How many pitchers the club's data base knows."""
    return 620


class Appearances(Dataset):
    """What a pitcher threw, appearance after appearance: his habits decide, and now and then a whim."""

    def __init__(self, count, first=0):
        self.count, self.first = count, first
        habits = np.random.default_rng(9).random((hired(), len(KINDS)))
        self.order = np.argsort(habits, 1)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        pitcher = int(rng.integers(0, 600))
        rhythm = int(rng.integers(2, 7))
        spot = (np.arange(PITCHES) * rhythm + int(rng.integers(0, 40))) % len(KINDS)
        kinds = self.order[pitcher][spot]
        whims = rng.random(PITCHES) < 0.15
        kinds = np.where(whims, rng.integers(0, len(KINDS), PITCHES), kinds)
        zones = (kinds * 5 + pitcher + rng.integers(0, 3, PITCHES)) % ZONES
        return pitcher, kinds, zones


class Rotation(Sampler):
    """Each rank takes every world-th appearance of a shuffled season, season after season."""

    def __init__(self, count, rank, world, seed):
        self.count, self.rank, self.world, self.seed = count, rank, world, seed

    def __iter__(self):
        season = 0
        while True:
            order = np.random.default_rng([self.seed, season]).permutation(self.count)
            yield from order[self.rank::self.world].tolist()
            season += 1

    def __len__(self):
        return 10 ** 9


class Plate(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.look, self.tell = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.swing = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        q, k, v = self.look(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.tell(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.swing(self.between(x))


class NextPitch(nn.Module):
    def __init__(self, pitchers, dim, heads, depth):
        super().__init__()
        self.pitcher, self.kind, self.zone = nn.Embedding(pitchers, dim), nn.Embedding(len(KINDS), dim), nn.Embedding(ZONES, dim)
        self.count = nn.Parameter(0.02 * torch.randn(PITCHES, dim))
        self.plates = nn.Sequential(*[Plate(dim, heads) for _ in range(depth)])
        self.guess = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, len(KINDS)))

    def forward(self, pitcher, kinds, zones):
        x = self.kind(kinds) + self.zone(zones) + self.pitcher(pitcher)[:, None] + self.count[:kinds.shape[1]]
        return self.guess(self.plates(x))


def surprise(net, batch, device):
    pitcher, kinds, zones = (x.to(device, non_blocking=True) for x in batch)
    guess = net(pitcher, kinds[:, :-1], zones[:, :-1])
    return F.cross_entropy(guess.flatten(0, 1), kinds[:, 1:].flatten()), guess, kinds[:, 1:]


class Club:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        torch.manual_seed(17)
        self.plain = NextPitch(hired(), o.dim, o.heads, o.depth).to(device)
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), o.rate, weight_decay=0.01)
        self.step = 0
        self.resume()
        self.net = DistributedDataParallel(self.plain, device_ids=[device.index] if device.type == "cuda" else None)
        pinned = device.type == "cuda"
        self.feed = iter(DataLoader(Appearances(o.season), o.batch, sampler=Rotation(o.season, rank, world, 4), num_workers=o.workers, pin_memory=pinned))
        self.spring = Appearances(o.spring, 10 ** 8 + 10 ** 6 * rank)
        self.best, self.began = 99.0, time.time()

    def say(self, text):
        if self.rank == 0:
            print(f"[{time.time() - self.began:6.1f}] {text}", flush=True)

    def resume(self):
        if os.path.exists(self.o.keep):
            kept = torch.load(self.o.keep, map_location=self.device)
            self.plain.load_state_dict(kept["net"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.step = kept["step"]
            print(f"rank {self.rank}: goes on after step {self.step}", flush=True)

    def learn(self):
        total = torch.zeros((), device=self.device)
        for turn in range(self.o.turns):
            batch = next(self.feed)
            last = turn == self.o.turns - 1
            with contextlib.nullcontext() if last else self.net.no_sync():
                loss, _, _ = surprise(self.net, batch, self.device)
                (loss / self.o.turns).backward()
            total += loss.detach() / self.o.turns
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    @torch.no_grad()
    def spring_training(self):
        """Surprise and right guesses over appearances that nobody learns from."""
        self.plain.eval()
        sums = torch.zeros(3, device=self.device)
        for batch in DataLoader(self.spring, self.o.batch):
            loss, guess, truth = surprise(self.plain, batch, self.device)
            sums += torch.stack([loss * truth.numel(), (guess.argmax(-1) == truth).sum().float(), torch.tensor(float(truth.numel()), device=self.device)])
        dist.all_reduce(sums)
        self.plain.train()
        return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()

    def save(self):
        if self.rank == 0:
            torch.save({"net": self.plain.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}, self.o.keep + ".part")
            os.replace(self.o.keep + ".part", self.o.keep)
            self.say(f"step {self.step} kept")
        dist.barrier()

    def done(self):
        word = torch.tensor([time.time() - self.began > 60 * self.o.minutes], dtype=torch.int32, device=self.device)
        dist.broadcast(word, 0)
        return word.item() == 1

    def season(self):
        while True:
            self.step += 1
            loss = self.learn()
            if self.step % self.o.tell == 0:
                mean = loss.clone()
                dist.all_reduce(mean)
                mean = mean.item() / self.world
                self.say(f"step {self.step} loss {mean:.4f}")
            if self.step % self.o.spring_every == 0:
                value, right = self.spring_training()
                self.best = min(self.best, value)
                self.say(f"step {self.step} spring {value:.4f} right {100 * right:.1f} % best {self.best:.4f}")
            if self.step % self.o.keep_every == 0:
                self.save()
            if self.step % 20 == 0 and self.done():
                break
        print(f"rank {self.rank}: end, {self.step} steps", flush=True)


def main():
    p = argparse.ArgumentParser()
    sizes = dict(dim=512, heads=8, depth=4, batch=128, turns=4, season=400000, spring=1024, workers=2, tell=5, spring_every=150, keep_every=100)
    for name, value in sizes.items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--keep", default="innings.pt")
    p.add_argument("--rate", type=float, default=3e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    club = Club(o, dist.get_rank(), dist.get_world_size(), device)
    print(f"rank {club.rank} of {club.world}: {sum(w.numel() for w in club.plain.parameters()) / 1e6:.1f}M weights, {device}", flush=True)
    club.season()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
