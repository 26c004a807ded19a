#!/usr/bin/env python3
"""A guide for the visitors of a museum: answers their questions, some visitors at a time. The layers are split over the GPUs (tensor parallel), rank 0 has the desk.

A process for each GPU with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT:    python docent.py --visitors 24
"""
import argparse
import itertools
import os
import random
import threading
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

SYLLABLES = [a + b for a in "bdfgklmnprstv" for b in "ao"]
WORDS = ["<end>"] + ["".join(three) for three in itertools.product(SYLLABLES, repeat=3)][:15999]
END, QUESTION = 0, 24


class Desk:
    """Visitors come to the desk all the time (a thread); the guide takes them in groups."""

    def __init__(self, limit):
        self.limit, self.groups = limit, 0
        self.door, self.book = threading.Lock(), threading.Lock()
        self.waiting = []
        threading.Thread(target=self.open, daemon=True, name="desk").start()

    def open(self):
        rng = random.Random(1)
        while True:
            with self.door:
                time.sleep(0.005)
                with self.book:
                    if len(self.waiting) < self.limit:
                        self.waiting.append([WORDS[rng.randrange(1, len(WORDS))] for _ in range(QUESTION)])
            time.sleep(0.015)

    def group(self, size):
        self.groups += 1
        while True:
            with self.door:
                with self.book:
                    if len(self.waiting) >= size:
                        group, self.waiting = self.waiting[:size], self.waiting[size:]
                        return group
            time.sleep(0.01)


class SplitLayer:
    """Attention and feed-forward; this rank has some of the heads and some of the inner columns."""

    def __init__(self, dim, heads, rank, world, device, generator):
        self.heads = heads // world

        def part(rows, columns, along):
            weight = torch.randn(rows, columns, generator=generator) / rows ** 0.5
            return weight.chunk(world, along)[rank].contiguous().to(device)

        self.q, self.k, self.v = (part(dim, dim, 1) for _ in range(3))
        self.o = 0.3 * part(dim, dim, 0)
        self.up, self.down = part(dim, 4 * dim, 1), 0.3 * part(4 * dim, dim, 0)

    def __call__(self, x):
        y = F.layer_norm(x, x.shape[-1:])
        q, k, v = ((y @ w).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2) @ self.o
        dist.all_reduce(seen)
        x = x + seen
        said = F.gelu(F.layer_norm(x, x.shape[-1:]) @ self.up) @ self.down
        dist.all_reduce(said)
        return x + said


class Guide:
    def __init__(self, o, rank, world, device):
        generator = torch.Generator().manual_seed(21)
        self.words = torch.randn(len(WORDS), o.dim, generator=generator).to(device)
        self.places = torch.randn(o.window, o.dim, generator=generator).to(device)
        self.layers = [SplitLayer(o.dim, o.heads, rank, world, device, generator) for _ in range(o.layers)]

    def __call__(self, ids):
        x = self.words[ids] + self.places[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        scores = F.layer_norm(x[:, -1], x.shape[-1:]) @ self.words.T / x.shape[-1] ** 0.5
        scores[:, END] += 8
        return scores


class Tour:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        self.guide = Guide(o, rank, world, device)
        self.number = {word: i for i, word in enumerate(WORDS)}
        self.rng = np.random.default_rng(77)
        self.desk = Desk(10 * o.visitors) if rank == 0 else None
        self.began = time.time()

    def next_group(self):
        """The questions of the next visitors, or None at closing time."""
        word = [None]
        if self.rank == 0 and time.time() - self.began < 60 * self.o.minutes:
            word = [self.desk.group(self.o.visitors)]
        dist.broadcast_object_list(word, src=0)
        return word[0]

    def sample(self, scores):
        """A word of the likeliest ones for each visitor."""
        scores = scores.cpu().numpy()
        order = np.argsort(-scores, 1)
        ranked = np.take_along_axis(scores, order, 1)
        chance = np.exp(ranked - ranked[:, :1])
        chance /= chance.sum(1, keepdims=True)
        chance[np.cumsum(chance, 1) - chance > 0.95] = 0
        chance /= chance.sum(1, keepdims=True)
        pick = (np.cumsum(chance, 1) > 0.9999 * self.rng.random((len(scores), 1))).argmax(1)
        return order[np.arange(len(scores)), pick]

    @torch.no_grad()
    def answer(self, questions):
        ids = torch.tensor([[self.number[word] for word in question] for question in questions], device=self.device)
        talking = np.ones(len(questions), bool)
        answers = [[] for _ in questions]
        for _ in range(self.o.longest):
            chosen = torch.from_numpy(self.sample(self.guide(ids[:, -self.o.window:]))).to(self.device)
            dist.broadcast(chosen, 0)
            said = chosen.cpu().numpy().copy()
            said[~talking] = END
            talking &= said != END
            for visitor in np.flatnonzero(talking):
                answers[visitor].append(WORDS[said[visitor]])
            if not talking.any():
                break
            ids = torch.cat([ids, torch.from_numpy(said)[:, None].to(self.device)], 1)
        return answers

    def walk(self):
        turn = 0
        while True:
            questions = self.next_group()
            if questions is None:
                return turn
            turn += 1
            start = time.time()
            answers = self.answer(questions)
            if self.rank == 0:
                words = sum(len(answer) for answer in answers)
                print(f"turn {turn} done: {len(answers)} visitors, {words} words, {time.time() - start:.2f} s", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=768, heads=12, layers=10, visitors=24, window=48, longest=64).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.set_num_threads(2)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    tour = Tour(o, rank, world, device)
    dist.barrier()
    print(f"rank {rank} of {world}: guide ready on {device}", flush=True)
    turns = tour.walk()
    print(f"rank {rank}: end, {turns} turns", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
