#!/usr/bin/env python3
"""Describes the lots of an auction, some at a time. Heads and inner columns of every layer are split over the GPUs (tensor parallel); rank 0 has the catalogue.

    torchrun --nproc-per-node 2 describe_lots.py --lots 32
"""
import argparse
import json
import os
import threading
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

WORDS, SOLD, TITLE = 4096, 0, 12


class Ledger:
    """What was said, for the auditors; a thread writes it down now and then."""

    def __init__(self, path):
        self.path, self.lines, self.pages = path, [], 0
        self.book, self.pen = threading.Lock(), threading.Lock()
        threading.Thread(target=self.keep, daemon=True, name="ledger").start()

    def keep(self):
        while True:
            with self.book:
                lines, self.lines = self.lines, []
                time.sleep(0.005)
                with self.pen:
                    self.write(lines)
            time.sleep(0.02)

    def write(self, lines):
        if lines:
            with open(self.path, "a") as file:
                file.write("\n".join(lines) + "\n")
            self.pages += 1

    def note(self, text):
        with self.book:
            self.lines.append(text)


class Layer:
    """One part of a layer: some heads, some inner columns."""

    def __init__(self, dim, heads, rank, world, device, generator):
        self.heads = heads // world

        def cut(rows, columns, along):
            whole = torch.randn(rows, columns, generator=generator) / rows ** 0.5
            return whole.chunk(world, along)[rank].contiguous().to(device)

        self.look, self.match, self.value = cut(dim, dim, 1), cut(dim, dim, 1), cut(dim, dim, 1)
        self.back = 0.4 * cut(dim, dim, 0)
        self.wide, self.narrow = cut(dim, 4 * dim, 1), 0.4 * cut(4 * dim, dim, 0)

    def __call__(self, x):
        y = F.layer_norm(x, x.shape[-1:])
        parts = [(y @ w).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.look, self.match, self.value)]
        seen = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2) @ self.back
        dist.all_reduce(seen)
        x = x + seen
        thought = F.silu(F.layer_norm(x, x.shape[-1:]) @ self.wide) @ self.narrow
        dist.all_reduce(thought)
        return x + thought


class Speaker:
    def __init__(self, o, rank, world, device):
        generator = torch.Generator().manual_seed(o.seed)
        self.words = torch.randn(WORDS, o.dim, generator=generator).to(device)
        self.places = torch.randn(o.window, o.dim, generator=generator).to(device)
        self.layers = [Layer(o.dim, o.heads, rank, world, device, generator) for _ in range(o.layers)]
        self.mouth = (torch.randn(o.dim, WORDS, generator=generator) / o.dim ** 0.5).to(device)

    def scores(self, ids):
        x = self.words[ids] + self.places[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        scores = F.layer_norm(x[:, -1], x.shape[-1:]) @ self.mouth
        scores[:, SOLD] += 4.7
        return scores


class Room:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        self.speaker = Speaker(o, rank, world, device)
        self.chance = np.random.default_rng(o.seed)
        self.catalogue = np.random.default_rng(99)
        self.ledger = Ledger(f"ledger-{rank}.txt")
        self.turn, self.pace, self.began = 0, 0.02, time.time()

    def next_lots(self):
        """Titles of the next lots from rank 0, None at the end."""
        word = [None]
        if self.rank == 0 and time.time() - self.began < 60 * self.o.minutes:
            word[0] = self.catalogue.integers(1, WORDS, (self.o.lots, TITLE))
        dist.broadcast_object_list(word, src=0)
        return word[0]

    def choose(self, scores):
        """The next word of each lot: Gumbel noise on the likeliest fifty."""
        top, which = scores.float().topk(50)
        top, which = top.cpu().numpy(), which.cpu().numpy()
        noise = -np.log(-np.log(self.chance.random(top.shape) + 1e-9) + 1e-9)
        best = (top / self.o.heat + noise).argmax(1)
        return which[np.arange(len(which)), best]

    @torch.no_grad()
    def describe(self, titles):
        ids, open_, said = torch.from_numpy(titles).to(self.device), np.ones(len(titles), bool), 0
        for _ in range(self.o.longest):
            start = time.perf_counter()
            words = self.choose(self.speaker.scores(ids[:, -self.o.window:]))
            words = torch.from_numpy(words).to(self.device)
            dist.broadcast(words, 0)
            words = words.cpu().numpy().copy()
            words[~open_] = SOLD
            open_ &= words != SOLD
            said += int(open_.sum())
            self.pace += 0.1 * (min(time.perf_counter() - start, 1.0) - self.pace)
            if not open_.any():
                break
            ids = torch.cat([ids, torch.from_numpy(words)[:, None].to(self.device)], 1)
        return said

    def sell(self):
        while True:
            titles = self.next_lots()
            if titles is None:
                return
            self.turn += 1
            start = time.time()
            said = self.describe(titles)
            self.ledger.note(json.dumps({"turn": self.turn, "words": said}))
            if self.rank == 0 and self.turn % self.o.tell_every == 0:
                print(f"turn {self.turn}: {len(titles)} lots, {said} words, {time.time() - start:.2f} s", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=512, heads=8, layers=2, lots=32, window=32, longest=20, seed=15, tell_every=2).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--heat", type=float, default=0.8)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.set_num_threads(2)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    room = Room(o, rank, world, device)
    dist.barrier()
    print(f"rank {rank} of {world} in the room, {o.layers} layers on {device}", flush=True)
    room.sell()
    print(f"rank {rank}: end, {room.turn} turns", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
