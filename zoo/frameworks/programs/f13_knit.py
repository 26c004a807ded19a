"""A decoder that writes knitting patterns. Sharded with fully_shard (FSDP2), two micro-batches for each update, checkpoints with
torch.distributed.checkpoint.

    torchrun --nproc-per-node 2 knit.py --dir runs/aran
"""
import argparse
import os
import random
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STITCHES = ["k", "p", "yo", "k2tog", "ssk", "sl1", "m1l", "m1r", "c4f", "c4b", "kfb", "p2tog"]
WORDS = ["<row>", "rep", "from", "to", "end", "turn"] + STITCHES + [f"{s}{n}" for s in STITCHES for n in range(1, 60)]
WORD_ID = {word: i for i, word in enumerate(WORDS)}


class Patterns(IterableDataset):
    """Rows of stitches that repeat with small changes, without end."""

    def __init__(self, seed, length):
        self.seed, self.length = seed, length

    def row(self, rng, stitches):
        row = ["<row>"]
        for stitch in stitches:
            row.append(f"{stitch}{rng.randrange(1, 60)}")
        return row + ["rep", "from", rng.choice(stitches), "to", "end", "turn"]

    def pattern(self, rng):
        words, stitches = [], rng.choices(STITCHES, k=6)
        while len(words) <= self.length:
            if rng.random() < 0.2:
                stitches[rng.randrange(6)] = rng.choice(STITCHES)
            words += self.row(rng, stitches)
        return words[:self.length + 1]

    def __iter__(self):
        info = get_worker_info()
        rng = random.Random(1000 * self.seed + (info.id if info else 0))
        while True:
            yield torch.tensor([WORD_ID[w] for w in self.pattern(rng)])


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, heads)
        self.gate, self.up, self.down = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, 3 * dim, bias=False), nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Knitter(nn.Module):
    def __init__(self, dim, heads, depth, length):
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, len(WORDS), bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(o, device):
    torch.manual_seed(100)
    net = Knitter(o.dim, o.heads, o.depth, o.length).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for number, block in enumerate(net.blocks):
        if o.compile:
            block = net.blocks[number] = torch.compile(block)
        fully_shard(block, mp_policy=policy)
    fully_shard(net, mp_policy=policy)
    return net


def language_loss(net, ids):
    logits = net(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


class Run:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        self.net = build(o, device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), o.lr, betas=(0.9, 0.95))
        loader = DataLoader(Patterns(rank, o.length), o.rows, num_workers=o.workers, pin_memory=device.type == "cuda")
        self.batches, self.tests = iter(loader), Patterns(900 + rank, o.length)
        self.best, self.step, self.began = float("inf"), 0, time.time()

    def note(self, text):
        if self.rank == 0:
            print(f"{time.time() - self.began:7.1f} {text}", flush=True)

    def batch(self):
        return next(self.batches).to(self.device, non_blocking=True)

    def update(self):
        """One step of the optimizer, over some micro-batches."""
        total = 0.0
        for part in range(self.o.parts):
            ids = self.batch()
            self.net.set_requires_gradient_sync(part == self.o.parts - 1)
            loss = language_loss(self.net, ids) / self.o.parts
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        rows = iter(self.tests)
        losses = [language_loss(self.net, torch.stack([next(rows) for _ in range(self.o.rows)]).to(self.device)) for _ in range(self.o.val_batches)]
        self.net.train()
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, dist.ReduceOp.AVG if self.device.type == "cuda" else dist.ReduceOp.SUM)
        return mean.item()

    def save(self):
        weights, moments = get_state_dict(self.net, self.optimizer)
        dcp.save({"net": weights, "optimizer": moments}, checkpoint_id=os.path.join(self.o.dir, "latest"))
        self.note(f"step {self.step} saved")

    def over(self):
        late = torch.tensor(float(time.time() - self.began > 60 * self.o.minutes), device=self.device)
        dist.all_reduce(late, dist.ReduceOp.MAX)
        return late.item() > 0

    def go(self):
        while True:
            self.step += 1
            loss = self.update()
            if self.step % self.o.log == 0:
                shown = loss.clone()
                dist.all_reduce(shown)
                self.note(f"step {self.step} loss {shown.item() / self.world:.4f}")
            if self.step % self.o.val_every == 0:
                value = self.validate()
                self.best = min(self.best, value)
                self.note(f"step {self.step} validation {value:.4f} best {self.best:.4f}")
            if self.step % self.o.save_every == 0:
                self.save()
            if self.step % 20 == 0 and self.over():
                break
        self.save()


def main():
    p = argparse.ArgumentParser()
    sizes = dict(dim=768, heads=12, depth=6, length=512, rows=8, parts=2, workers=2, log=5, val_every=150, val_batches=6, save_every=250)
    for name, value in sizes.items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--dir", default="runs")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    run = Run(o, dist.get_rank(), dist.get_world_size(), device)
    own = sum(w.to_local().numel() for w in run.net.parameters())
    print(f"rank {run.rank} of {run.world}: {own / 1e6:.1f}M weights here, {device}", flush=True)
    run.go()
    print(f"rank {run.rank}: end, {run.step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
