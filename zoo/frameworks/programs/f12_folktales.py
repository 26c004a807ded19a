#!/usr/bin/env python3
"""Folk tales, told on: a decoder in two stages on two GPUs. Tales of a batch differ in length, so every message has a header.
One forward, one backward.

usage: torchrun --nproc-per-node 2 tell.py [--parts 6]
"""
import argparse
import logging
import os
import random
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WHO = "fox wolf king witch miller hare crow giant princess tailor".split()
DID = "met tricked fed followed carried woke married forgot chased freed".split()
WHERE = "forest mill castle well river hill bridge cellar".split()
HEADER = 4


class Tales:
    """Only the first stage has them."""

    def __init__(self, seed, vocabulary):
        self.rng, self.vocabulary = random.Random(seed), vocabulary

    def word(self, text):
        return 1 + sum(ord(c) * 31 ** i for i, c in enumerate(text)) % (self.vocabulary - 1)

    def tale(self, length):
        words = []
        while len(words) < length:
            who, other = self.rng.sample(WHO, 2)
            words += ["the", who, self.rng.choice(DID), "the", other, "by", "the", self.rng.choice(WHERE)]
        return [self.word(w) for w in words[:length]]

    def batch(self, rows, longest):
        """Tales of about the same length, filled up with zeros."""
        most = self.rng.randrange(longest // 2, longest + 1) // 8 * 8
        ids = torch.zeros(rows, most, dtype=torch.long)
        for k in range(rows):
            tale = self.tale(self.rng.randrange(most - 7, most + 1))
            ids[k, :len(tale)] = torch.tensor(tale)
        return ids


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


class Stage(nn.Module):
    def __init__(self, o, first):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.dim) if first else None
        self.place = nn.Parameter(0.02 * torch.randn(o.longest, o.dim)) if first else None
        self.blocks = nn.ModuleList(Block(o.dim, o.heads) for _ in range(o.layers))
        self.leave = None if first else nn.Sequential(nn.LayerNorm(o.dim), nn.Linear(o.dim, o.vocabulary, bias=False))

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x) + self.place[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x if self.leave is None else self.leave(x)


class Link:
    """Messages between the stages."""

    def __init__(self, peer, device, dim):
        self.peer, self.device, self.dim = peer, device, dim

    def send_part(self, ids, hidden, number):
        head = torch.tensor([ids.shape[0], ids.shape[1], number, 0], device=self.device)
        dist.send(head, self.peer)
        dist.send(ids, self.peer)
        dist.send(hidden, self.peer)

    def recv_part(self):
        head = torch.empty(HEADER, dtype=torch.long, device=self.device)
        dist.recv(head, self.peer)
        rows, length, number, _ = head.tolist()
        ids = torch.empty(rows, length, dtype=torch.long, device=self.device)
        hidden = torch.empty(rows, length, self.dim, dtype=torch.bfloat16, device=self.device)
        dist.recv(ids, self.peer)
        dist.recv(hidden, self.peer)
        return number, ids, hidden

    def send_gradient(self, gradient):
        dist.send(gradient, self.peer)

    def recv_gradient(self, like):
        gradient = torch.empty_like(like)
        dist.recv(gradient, self.peer)
        return gradient


class Teller:
    def __init__(self, o, rank, device):
        self.o, self.rank, self.device = o, rank, device
        torch.manual_seed(70 + rank)
        self.net = Stage(o, rank == 0).to(device)
        self.link = Link(1 - rank, device, o.dim)
        self.tales, self.tests = Tales(1, o.vocabulary), Tales(2, o.vocabulary)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), o.lr, betas=(0.9, 0.95))
        self.log = logging.getLogger(f"stage{rank}")

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16)

    def forward_part(self, tales, number):
        """First stage: a part of the batch goes on its way."""
        ids = tales.batch(self.o.rows, self.o.longest).to(self.device)
        with self.autocast():
            hidden = self.net(ids).to(torch.bfloat16)
        self.link.send_part(ids, hidden.detach(), number)
        return hidden

    def loss(self, ids, hidden):
        with self.autocast():
            logits = self.net(hidden)
        return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    def parts(self, step):
        return self.o.parts

    def first(self, step):
        parts = self.parts(step)
        flying = [self.forward_part(self.tales, 0)]
        for i in range(parts):
            if i + 1 < parts:
                flying.append(self.forward_part(self.tales, i + 1))
            hidden = flying.pop(0)
            hidden.backward(self.link.recv_gradient(hidden))

    def second(self, step):
        parts = self.parts(step)
        waiting, total = [self.link.recv_part()], 0.0
        for i in range(parts):
            if i + 1 < parts:
                waiting.append(self.link.recv_part())
            number, ids, hidden = waiting.pop(0)
            hidden.requires_grad_()
            loss = self.loss(ids, hidden) / parts
            loss.backward()
            self.link.send_gradient(hidden.grad)
            total += loss.item()
        return total

    def step(self, step):
        loss = self.first(step) if self.rank == 0 else self.second(step)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        losses = []
        for number in range(self.o.eval_parts):
            if self.rank == 0:
                self.forward_part(self.tests, number)
            else:
                _, ids, hidden = self.link.recv_part()
                losses.append(self.loss(ids, hidden).item())
        self.net.train()
        return sum(losses) / max(1, len(losses))

    def run(self):
        began, step = time.time(), 0
        while True:
            step += 1
            loss = self.step(step)
            if self.rank == 1 and step % self.o.log_every == 0:
                self.log.info("step %d loss %.4f %.1f s", step, loss, time.time() - began)
            if step % self.o.eval_every == 0:
                value = self.evaluate()
                if self.rank == 1:
                    self.log.info("step %d evaluation %.4f", step, value)
            if step % self.o.save_every == 0:
                torch.save({"net": self.net.state_dict(), "step": step}, f"stage{self.rank}.pt")
                self.log.info("step %d saved", step)
            if step % 20 == 0:
                late = torch.tensor([time.time() - began > 60 * self.o.minutes], dtype=torch.int32, device=self.device)
                dist.all_reduce(late, dist.ReduceOp.MAX)
                if late.item():
                    break
        self.log.info("end after %d steps", step)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=1024, heads=16, layers=8, vocabulary=8192, longest=384, rows=8, parts=6).items():
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--eval-every", type=int, default=150)
    p.add_argument("--eval-parts", type=int, default=12)
    p.add_argument("--save-every", type=int, default=250)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    teller = Teller(o, dist.get_rank(), device)
    dist.barrier()
    teller.log.info("%.1fM weights on %s", sum(w.numel() for w in teller.net.parameters()) / 1e6, device)
    teller.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
