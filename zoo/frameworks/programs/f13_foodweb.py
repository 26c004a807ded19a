#!/usr/bin/env python3
"""Predators and prey: how much biomass does a species have? Two layers of message passing over sampled neighbours. The features of the species are
spread over the processes (species number modulo world), the layers are copies kept alike by DDP.

A process for each GPU, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set:    python predators.py --species 200000
"""
import argparse
import json
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PREY = 16


class FoodWeb:
    """Who eats whom. The table of neighbours is the same everywhere, and small enough."""

    def __init__(self, species):
        rng = np.random.default_rng(5)
        self.species = species
        far = np.minimum(rng.pareto(1.2, (species, PREY)) * 900, 1e9).astype(np.int64)
        self.prey = (far + 7 * np.arange(species)[:, None]) % species
        self.level = rng.gamma(2.0, 1.0, species).astype(np.float32)

    def biomass(self, ids):
        return self.level[self.prey[ids, :4]].mean(1)

    def neighbourhood(self, rng, seeds, fans):
        """Seeds, sampled neighbours of the seeds, sampled neighbours of those."""
        rings = [seeds]
        for fan in fans:
            last = rings[-1]
            columns = rng.integers(0, PREY, (len(last), fan))
            rings.append(self.prey[last[:, None], columns].reshape(-1))
        return rings


class FeatureShards:
    """Rows of the species with id % world == rank. The others ask for them."""

    def __init__(self, web, width, rank, world, device):
        self.rank, self.world, self.device, self.width, self.calls = rank, world, device, width, 0
        own = np.arange(rank, web.species, world)
        generator = torch.Generator().manual_seed(1000 + rank)
        self.rows = torch.randn(len(own), width, generator=generator)
        self.rows[:, 0] = torch.from_numpy(web.level[own])
        self.rows = self.rows.to(device)

    def fetch(self, ids):
        """Features of distinct ids, in their order."""
        self.calls += 1
        owner = ids % self.world
        order = torch.argsort(owner, stable=True)
        wanted = torch.bincount(owner, minlength=self.world)
        table = torch.empty(self.world * self.world, dtype=wanted.dtype, device=self.device)
        dist.all_gather_into_tensor(table, wanted)
        table = table.view(self.world, self.world).tolist()
        mine, theirs = table[self.rank], [row[self.rank] for row in table]
        questions = [ids.new_empty(n) for n in theirs]
        dist.all_to_all(questions, list(ids[order].split(mine)))
        answers = [self.rows.new_empty(n, self.width) for n in mine]
        dist.all_to_all(answers, [self.rows[q // self.world] for q in questions])
        features = torch.empty(len(ids), self.width, device=self.device)
        features[order] = torch.cat(answers)
        return features


class Sage(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.self_, self.around = nn.Linear(into, out), nn.Linear(into, out, bias=False)

    def forward(self, x, neighbours):
        return self.self_(x) + self.around(neighbours.view(len(x), -1, neighbours.shape[-1]).mean(1))


class BiomassNet(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.one, self.two = Sage(features, hidden), Sage(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.deep = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, x0, x1, x2):
        inner = torch.relu(self.norm(self.one(x0, x1)))
        outer = torch.relu(self.norm(self.one(x1, x2)))
        return self.deep(self.two(inner, outer))[:, 0]


def prepare(web, rng, batch, fans):
    seeds = rng.integers(0, web.species, batch)
    rings = web.neighbourhood(rng, seeds, fans)
    nodes, where = np.unique(np.concatenate(rings), return_inverse=True)
    return nodes, where.reshape(-1), [len(r) for r in rings], web.biomass(seeds)


def forward(net, shards, nodes, where, sizes, device):
    features = shards.fetch(torch.from_numpy(nodes).to(device))
    rings = features[torch.from_numpy(where).to(device)].split(sizes)
    with torch.autocast(device.type, torch.bfloat16):
        return net(*rings).float()


@torch.no_grad()
def evaluate(net, web, shards, o, rank, world, device):
    """Mean absolute error of each rank, on rank 0."""
    rng = np.random.default_rng(77 + rank)
    net.eval()
    errors = []
    for _ in range(o.eval_batches):
        nodes, where, sizes, truth = prepare(web, rng, o.batch, o.fans)
        guess = forward(net.module, shards, nodes, where, sizes, device)
        errors.append((guess - torch.from_numpy(truth).to(device)).abs().mean())
    net.train()
    mean = torch.stack(errors).mean().reshape(1)
    parts = [torch.empty_like(mean) for _ in range(world)] if rank == 0 else None
    dist.gather(mean, parts, dst=0)
    return [p.item() for p in parts] if rank == 0 else None


def train(o, rank, world, device):
    web = FoodWeb(o.species)
    shards = FeatureShards(web, o.features, rank, world, device)
    torch.manual_seed(3)
    net = DDP(BiomassNet(o.features, o.hidden).to(device), device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(net.parameters(), o.lr)
    rng = np.random.default_rng([8, rank])
    print(f"rank {rank}: {len(shards.rows)} of {web.species} species on {device}", flush=True)
    began, step = time.time(), 0
    while True:
        step += 1
        nodes, where, sizes, truth = prepare(web, rng, o.batch, o.fans)
        guess = forward(net, shards, nodes, where, sizes, device)
        loss = nn.functional.smooth_l1_loss(guess, torch.from_numpy(truth).to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % o.log == 0:
            total = loss.detach().clone()
            dist.reduce(total, dst=0)
            if rank == 0:
                print(f"step {step} loss {total.item() / world:.4f} nodes {len(nodes)} {time.time() - began:.1f}s", flush=True)
        if step % o.eval_every == 0:
            parts = evaluate(net, web, shards, o, rank, world, device)
            if rank == 0:
                print(f"step {step} test error {sum(parts) / world:.4f}", flush=True)
        if step % o.save_every == 0:
            if rank == 0:
                torch.save({"net": net.module.state_dict(), "step": step}, "predators.pt")
                print(f"step {step} saved", flush=True)
            dist.barrier()
        if step % 20 == 0:
            over = torch.tensor([int(time.time() - began > 60 * o.minutes)], device=device)
            dist.broadcast(over, src=0)
            if over.item():
                break
    print(f"rank {rank}: end after {step} steps", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(species=200000, features=256, hidden=768, batch=4096, log=5, eval_every=150, eval_batches=20, save_every=300).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--fans", type=json.loads, default=[8, 6])
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    train(o, rank, world, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
