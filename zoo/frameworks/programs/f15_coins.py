#!/usr/bin/env python3
# Tells old coins apart: obverse and reverse of a coin get neighbouring vectors. A mixer over patches, a loop with Hugging Face Accelerate:
#     accelerate launch --multi_gpu --num_processes 2 match_coins.py --micro 2
import argparse
import contextlib
import os
import queue
import threading
import time
from datetime import timedelta

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, PATCH = 32, 4


class Hoard(Dataset):
    """Both sides of coins: what the mint stamped, worn by use."""

    def __init__(self, coins, seed):
        rng = np.random.default_rng(seed)
        self.kinds = rng.integers(0, 400, coins)
        self.wear = rng.integers(0, 2048, (coins, 2))
        fixed = np.random.default_rng(12)
        self.stamps = fixed.standard_normal((400, 2, SIDE, SIDE)).astype(np.float32)
        self.rust = np.float32(0.8) * fixed.standard_normal((2048 + SIDE, SIDE)).astype(np.float32)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        a, b = self.wear[i]
        front, back = self.stamps[self.kinds[i]]
        return {"front": front + self.rust[a:a + SIDE], "back": back + self.rust[b:b + SIDE], "kind": int(self.kinds[i])}


class Mix(nn.Module):
    def __init__(self, places, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.across = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        self.along = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


class Numismatist(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        places = (SIDE // PATCH) ** 2
        self.enter = nn.Conv2d(1, dim, PATCH, PATCH)
        self.mixes = nn.Sequential(*[Mix(places, dim) for _ in range(depth)])
        self.leave = nn.Linear(dim, 96)

    def forward(self, pictures):
        x = self.enter(pictures[:, None]).flatten(2).transpose(1, 2)
        return F.normalize(self.leave(self.mixes(x).mean(1)), dim=-1)


class Gallery(threading.Thread):
    """Keeps the newest vectors for a quick look-up; a thread of its own puts them in order."""

    def __init__(self, room):
        super().__init__(daemon=True, name="gallery")
        self.room, self.shelves, self.lock, self.inbox = room, [], threading.Lock(), queue.Queue()
        self.pace = 0.1

    def run(self):
        while True:
            vectors = self.inbox.get()
            with self.lock:
                self.shelves = (self.shelves + [vectors])[-self.room:]
            self.inbox.task_done()

    def show(self, vectors):
        self.inbox.put(vectors)
        self.inbox.join()


def agreement(front, back):
    alike = front @ back.T / 0.1
    truth = torch.arange(len(front), device=front.device)
    return (F.cross_entropy(alike, truth) + F.cross_entropy(alike.T, truth)) / 2


def appraise(accelerator, net, loader):
    """How many fronts find a back of their kind."""
    net.eval()
    found = []
    for batch in loader:
        with torch.no_grad():
            front, back = net(torch.cat([batch["front"], batch["back"]])).chunk(2)
        best = (front @ back.T).argmax(1)
        found.append(accelerator.gather_for_metrics((batch["kind"][best] == batch["kind"]).float()))
    net.train()
    return torch.cat(found).mean().item()


class Trade:
    def __init__(self, o, accelerator):
        self.o, self.accelerator = o, accelerator
        set_seed(o.seed)
        net = Numismatist(o.dim, o.depth)
        optimizer = torch.optim.AdamW(net.parameters(), o.rate)
        train = DataLoader(Hoard(o.coins, 1), o.batch, shuffle=True, drop_last=True)
        held = DataLoader(Hoard(o.held, 2), o.batch)
        self.net, self.optimizer, self.train, self.held = accelerator.prepare(net, optimizer, train, held)
        self.micro = o.micro
        self.gallery = Gallery(20)
        self.gallery.start()
        self.began, self.tick = time.time(), time.perf_counter()

    def clock(self):
        now = time.perf_counter()
        self.gallery.pace += 0.1 * (min(now - self.tick, 1.0) - self.gallery.pace)
        self.tick = now

    def tell(self, text):
        if self.accelerator.is_main_process:
            print(f"{time.time() - self.began:7.1f} {text}", flush=True)

    def strike(self, batch, last):
        """A part of a step; the last one changes the weights."""
        with contextlib.nullcontext() if last else self.accelerator.no_sync(self.net):
            front, back = self.net(torch.cat([batch["front"], batch["back"]])).chunk(2)
            loss = agreement(front, back)
            self.accelerator.backward(loss / self.micro)
        if last:
            self.accelerator.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.gallery.show(front.detach().cpu().numpy())
        return loss.detach()

    def go(self):
        a, turn = self.accelerator, 0
        while True:
            for batch in self.train:
                turn += 1
                loss = self.strike(batch, turn % self.micro == 0)
                self.clock()
                if turn % self.o.tell_every == 0:
                    mean = a.reduce(loss, "mean").item()
                    self.tell(f"batch {turn} loss {mean:.4f} {self.gallery.pace:.3f} s a batch")
                if turn % self.o.held_every == 0:
                    self.tell(f"batch {turn} found {appraise(a, self.net, self.held):.3f}")
                if turn % self.o.save_every == 0:
                    a.save_state(os.path.join(self.o.out, "state"))
                    self.tell(f"batch {turn} saved")
                if turn % 20 == 0:
                    late = torch.tensor(float(time.time() - self.began > 60 * self.o.minutes), device=a.device)
                    if a.reduce(late, "sum").item() > 0:
                        return turn


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=256, depth=5, batch=96, micro=2, coins=40000, held=1500, seed=23, tell_every=10, held_every=200, save_every=300).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--out", default="purse")
    p.add_argument("--rate", type=float, default=5e-4)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=o.timeout))])
    trade = Trade(o, accelerator)
    print(f"process {accelerator.process_index} of {accelerator.num_processes} on {accelerator.device}, {len(trade.train)} batches, {trade.micro} a step", flush=True)
    turns = trade.go()
    print(f"process {accelerator.process_index}: end, {turns} batches", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
