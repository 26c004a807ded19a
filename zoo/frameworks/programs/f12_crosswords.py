#!/usr/bin/env python3
"""Fills the gaps of crosswords by reinforcement learning. Rank 1 writes (generation with a cache), rank 0 learns from what it wrote (clipped policy
gradient) and gives the new weights back. Tensors go over NCCL, notes about each round over Gloo.

    torchrun --nproc-per-node=2 compose.py
"""
import argparse
import json
import math
import os
import random
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

ALPHABET = " abcdefghijklmnopqrstuvwxyz?|"
GAP, BAR = ALPHABET.index("?"), ALPHABET.index("|")
VOWELS = {ALPHABET.index(c) for c in "aeiou"}
LEARNER, WRITER = 0, 1


class Puzzles:
    """Patterns: some letters are given, the others are gaps."""

    def __init__(self, seed, length):
        self.rng, self.length = random.Random(seed), length

    def pattern(self):
        return [self.rng.randrange(1, 27) if self.rng.random() < 0.3 else GAP for _ in range(self.length)]

    def draw(self, count):
        return torch.tensor([self.pattern() + [BAR] for _ in range(count)])


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, cache=None, at=0):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, 2))
        if cache is not None:
            t = x.shape[1]
            cache[0][:, :, at:at + t], cache[1][:, :, at:at + t] = k, v
            k, v = cache[0][:, :, :at + t], cache[1][:, :, :at + t]
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=at == 0).transpose(1, 2).flatten(2))
        return x + self.mlp(self.n2(x))


class Policy(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.letter, self.place = nn.Embedding(len(ALPHABET), o.dim), nn.Embedding(2 * o.length + 1, o.dim)
        self.layers = nn.ModuleList(Layer(o.dim, o.heads) for _ in range(o.depth))
        self.norm, self.leave = nn.LayerNorm(o.dim), nn.Linear(o.dim, len(ALPHABET))

    def forward(self, ids, caches=None, at=0):
        x = self.letter(ids) + self.place(torch.arange(at, at + ids.shape[1], device=ids.device))
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches is not None else None, at)
        return self.leave(self.norm(x)).float()

    def caches(self, rows):
        like = self.letter.weight
        shape = 2, rows, self.o.heads, 2 * self.o.length + 1, self.o.dim // self.o.heads
        return [torch.zeros(shape, device=like.device, dtype=like.dtype) for _ in self.layers]


def judge(pattern, letters):
    """Given letters must stay, gaps become letters, vowels and consonants take turns."""
    kept = sum(p in (GAP, c) for p, c in zip(pattern, letters)) / len(letters)
    filled = sum(1 <= c <= 26 for c in letters) / len(letters)
    turns = sum((a in VOWELS) != (b in VOWELS) for a, b in zip(letters, letters[1:])) / len(letters)
    return kept + filled + turns


class Exchange:
    """What the two ranks tell each other."""

    def __init__(self, o, device):
        self.o, self.device = o, device
        self.notes = dist.new_group(backend="gloo", timeout=timedelta(seconds=o.timeout))

    def shapes(self):
        n, t = self.o.rows, self.o.length
        return {"ids": ((n, 2 * t + 1), torch.long), "chance": ((n, t), torch.float32), "reward": ((n,), torch.float32)}

    def give(self, rollout):
        for name, (shape, dtype) in self.shapes().items():
            dist.send(rollout[name].to(dtype).contiguous(), LEARNER)

    def take(self):
        rollout = {}
        for name, (shape, dtype) in self.shapes().items():
            rollout[name] = torch.empty(shape, dtype=dtype, device=self.device)
            dist.recv(rollout[name], WRITER)
        return rollout

    def weights(self, policy):
        """All weights as one tensor, from the learner."""
        flat = torch.cat([p.data.flatten().to(torch.bfloat16) for p in policy.parameters()])
        dist.broadcast(flat, LEARNER)
        if dist.get_rank() == WRITER:
            at = 0
            for p in policy.parameters():
                p.data.copy_(flat[at:at + p.numel()].view_as(p))
                at += p.numel()

    def note(self, entry):
        """The learner gets the notes of both."""
        both = [None, None] if dist.get_rank() == LEARNER else None
        dist.gather_object(entry, both, LEARNER, group=self.notes)
        return both

    def decide(self, over):
        answer = [over]
        dist.broadcast_object_list(answer, LEARNER, group=self.notes)
        return answer[0]


class Writer:
    def __init__(self, o, device, exchange):
        self.o, self.device, self.exchange = o, device, exchange
        self.policy = Policy(o).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32).eval()
        self.puzzles = Puzzles(5, o.length)
        torch.manual_seed(90)

    @torch.no_grad()
    def write(self, patterns):
        ids, chances = patterns.to(self.device), []
        caches, now, at = self.policy.caches(len(ids)), ids, 0
        for _ in range(self.o.length):
            logits = self.policy(now, caches, at)[:, -1]
            at += now.shape[1]
            noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-6)))
            now = (logits + noise).argmax(-1, keepdim=True)
            chances.append(logits.log_softmax(-1).gather(1, now))
            ids = torch.cat([ids, now], 1)
        return ids, torch.cat(chances, 1)

    def round(self, number):
        ids, chance = self.write(self.puzzles.draw(self.o.rows))
        texts = ids.tolist()
        reward = torch.tensor([judge(t[:self.o.length], t[self.o.length + 1:]) for t in texts], device=self.device)
        self.exchange.give({"ids": ids, "chance": chance, "reward": reward})
        self.exchange.weights(self.policy)
        example = "".join(ALPHABET[i] for i in texts[0])
        return {"reward": reward.mean().item(), "example": example}


class Learner:
    def __init__(self, o, device, exchange):
        self.o, self.device, self.exchange = o, device, exchange
        self.policy = Policy(o).to(device)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), o.lr, weight_decay=0.0)

    def surrogate(self, rollout, advantage):
        t = self.o.length
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.policy(rollout["ids"][:, :-1])[:, t:]
        logs = logits.log_softmax(-1)
        chance = logs.gather(2, rollout["ids"][:, t + 1:, None])[..., 0]
        ratio = (chance - rollout["chance"]).exp()
        gain = torch.minimum(ratio * advantage[:, None], ratio.clamp(0.8, 1.2) * advantage[:, None]).mean()
        return -gain + 0.01 * (logs.exp() * logs).sum(-1).mean()

    def learn(self, rollout):
        reward = rollout["reward"]
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        losses = []
        for rows in torch.randperm(len(reward), device=self.device).split(self.o.rows // self.o.minibatches):
            loss = self.surrogate({name: x[rows] for name, x in rollout.items()}, advantage[rows])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean().item()

    def round(self, number):
        rollout = self.exchange.take()
        loss = self.learn(rollout)
        self.exchange.weights(self.policy)
        return {"loss": loss}


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=512, heads=8, depth=8, length=28, rows=256, minibatches=4, save=200, show=5, timeout=900).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--minutes", type=float, default=1.4)
    o = p.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    rank = dist.get_rank()
    exchange = Exchange(o, device)
    torch.manual_seed(3)
    worker = (Learner if rank == LEARNER else Writer)(o, device, exchange)
    exchange.weights(worker.policy)
    weights = sum(w.numel() for w in worker.policy.parameters())
    print(f"rank {rank} is the {type(worker).__name__.lower()}, {weights / 1e6:.1f}M weights on {device}", flush=True)
    began, number, over = time.time(), 0, False
    while not over:
        number += 1
        start = time.time()
        entry = worker.round(number)
        entry["seconds"] = round(time.time() - start, 4)
        both = exchange.note(entry)
        if rank == LEARNER and number % o.show == 0:
            taken = f"{entry['seconds'] * 1000:.0f} ms"
            print(f"round {number} loss {both[0]['loss']:.4f} reward {both[1]['reward']:.3f} {both[1]['example']!r} {taken}", flush=True)
            with open("rounds.jsonl", "a") as file:
                file.write(json.dumps({"round": number, "learner": both[0], "writer": both[1]}) + "\n")
        if rank == LEARNER and number % o.save == 0:
            torch.save(worker.policy.state_dict(), "policy.pt")
            print(f"round {number} saved", flush=True)
        if rank == LEARNER and not math.isfinite(entry["loss"]):
            print(f"round {number} loss is {entry['loss']}", flush=True)
        if number % 10 == 0:
            over = exchange.decide(time.time() - began > 60 * o.minutes)
    print(f"rank {rank} ends after {number} rounds", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
