"""When does a parcel arrive? Regression over addresses, depots and carriers. The table of embeddings is spread over the ranks (all-to-all), the dense
layers are copies (all-reduce), each with a group of its own; notes go over Gloo, and rank 0 steers the run through a TCPStore of its own.

One process for each GPU, from a shell loop:  RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python eta.py --control 5555
"""
import argparse
import json
import os
import queue
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

FIELDS = 24


class Parcels:
    """Parcels of one rank: ids of the fields, some numbers, hours until the arrival. Made ahead by a thread."""

    def __init__(self, rank, rows, batch, ahead=3):
        self.rng, self.rows, self.batch = np.random.default_rng([4, rank]), rows, batch
        self.popular = (np.random.default_rng(3).pareto(1.1, 1 << 20) * 40).astype(np.int64) * 31
        self.hours = np.random.default_rng(4).gamma(2.0, 2.0, 4096).astype(np.float32)
        self.shelf = queue.Queue(ahead)
        self.made = 0
        threading.Thread(target=self.fill, daemon=True).start()

    def make(self):
        ids = self.popular[self.rng.integers(0, 1 << 20, (self.batch, FIELDS))] + np.arange(FIELDS) * 104729
        ids %= self.rows
        numbers = self.rng.standard_normal((self.batch, 8), dtype=np.float32)
        target = self.hours[ids[:, :4] % 4096].sum(1) + numbers[:, 0]
        return ids, numbers, target

    def fill(self):
        while True:
            self.shelf.put(self.make())
            self.made += 1

    def next(self, device):
        return [torch.from_numpy(x).to(device, non_blocking=True) for x in self.shelf.get()]


class Table:
    """Rows with id % world == rank."""

    def __init__(self, rows, dim, group, device, rate):
        self.group, self.world, self.rank, self.rate, self.dim = group, dist.get_world_size(), dist.get_rank(), rate, dim
        generator = torch.Generator().manual_seed(12 + self.rank)
        self.weight = (0.05 * torch.randn(rows // self.world + 1, dim, generator=generator)).to(device)

    def exchange(self, x, out, into):
        got = x.new_empty(sum(into), *x.shape[1:])
        dist.all_to_all_single(got, x.contiguous(), into, out, group=self.group)
        return got

    def lookup(self, ids):
        owner = ids % self.world
        order = torch.argsort(owner, stable=True)
        counts = torch.bincount(owner, minlength=self.world)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        out, into = counts.tolist(), theirs.tolist()
        asked = self.exchange(ids[order], out, into) // self.world
        got = self.exchange(self.weight[asked], into, out)
        rows = torch.empty_like(got)
        rows[order] = got
        return rows, (order, out, into, asked)

    def update(self, gradient, where):
        order, out, into, asked = where
        back = self.exchange(gradient[order], out, into)
        self.weight.index_add_(0, asked, back, alpha=-self.rate)


class Arrival(nn.Module):
    def __init__(self, dim, width, depth):
        super().__init__()
        self.first = nn.Linear(FIELDS * dim + 8, width)
        self.deep = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
                                  for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, rows, numbers):
        x = self.first(torch.cat([rows.flatten(1), numbers], 1))
        for layer in self.deep:
            x = x + layer(x)
        return self.last(x)[:, 0].float()


class Control:
    """Rank 0 says what is done; the others ask for it."""

    def __init__(self, port, rank, world, patience):
        self.rank = rank
        self.store = dist.TCPStore(os.environ["MASTER_ADDR"], port, world, rank == 0, timeout=timedelta(seconds=patience), wait_for_workers=True)

    def plan(self, step, make):
        key = f"plan/{step}"
        if self.rank == 0:
            self.store.set(key, json.dumps(make()))
        return json.loads(self.store.get(key))

    def beat(self, step):
        self.store.set(f"beat/{self.rank}", str(step))


class Job:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        wait = timedelta(seconds=o.timeout)
        everyone = list(range(world))
        self.sparse, self.dense = dist.new_group(everyone, timeout=wait), dist.new_group(everyone, timeout=wait)
        self.notes = dist.new_group(everyone, timeout=wait, backend="gloo")
        self.control = Control(o.control, rank, world, o.patience)
        self.parcels, self.tests = Parcels(rank, o.rows, o.batch), Parcels(50 + rank, o.rows, o.batch)
        self.table = Table(o.rows, o.dim, self.sparse, device, o.table_rate)
        torch.manual_seed(6)
        self.net = Arrival(o.dim, o.width, o.depth).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), o.lr)
        self.began, self.step, self.rate = time.time(), 0, o.lr

    def say(self, text):
        print(f"[{self.rank}] {time.time() - self.began:7.1f}s {text}", flush=True)

    def predict(self, ids, numbers):
        rows, where = self.table.lookup(ids.flatten())
        rows = rows.view(len(ids), FIELDS, -1).requires_grad_()
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.net(rows, numbers), rows, where

    def reduce(self):
        gradients = [w.grad for w in self.net.parameters()]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat, group=self.dense)
        flat /= self.world
        for g, part in zip(gradients, flat.split([g.numel() for g in gradients])):
            g.copy_(part.view_as(g))

    def train(self):
        ids, numbers, target = self.parcels.next(self.device)
        guess, rows, where = self.predict(ids, numbers)
        loss = nn.functional.huber_loss(guess, target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.reduce()
        self.optimizer.step()
        self.table.update(rows.grad.flatten(0, 1), where)
        return loss.item()

    @torch.no_grad()
    def test(self, batches=8):
        errors = []
        for _ in range(batches):
            ids, numbers, target = self.tests.next(self.device)
            errors.append((self.predict(ids, numbers)[0] - target).abs().mean().item())
        return sum(errors) / batches

    def share(self, entry):
        """What each rank has to tell, for rank 0."""
        all_entries = [None] * self.world if self.rank == 0 else None
        dist.gather_object(entry, all_entries, 0, group=self.notes)
        return all_entries

    def save(self):
        torch.save({"table": self.table.weight, "net": self.net.state_dict() if self.rank == 0 else None}, f"part-{self.rank}.pt")
        dist.barrier(group=self.notes)
        self.say(f"step {self.step} saved")

    def plan(self):
        late = time.time() - self.began > 60 * self.o.minutes
        return {"stop": late, "rate": self.o.lr * min(1.0, self.step / 200) * 0.9999 ** self.step}

    def run(self):
        while True:
            self.step += 1
            loss = self.train()
            if self.step % self.o.report == 0:
                self.control.beat(self.step)
                entries = self.share({"loss": loss, "made": self.parcels.made})
                if self.rank == 0:
                    self.say(f"step {self.step} loss {sum(e['loss'] for e in entries) / self.world:.4f} made {[e['made'] for e in entries]}")
            if self.step % self.o.test == 0:
                entries = self.share(self.test())
                if self.rank == 0:
                    self.say(f"step {self.step} off by {sum(entries) / self.world:.3f} hours")
            if self.step % self.o.save == 0:
                self.save()
            if self.step % 20 == 0:
                plan = self.control.plan(self.step, self.plan)
                for group in self.optimizer.param_groups:
                    group["lr"] = plan["rate"]
                if plan["stop"]:
                    break
        self.say(f"{self.step} steps")


def main():
    p = argparse.ArgumentParser()
    sizes = dict(control=0, rows=2000000, dim=64, width=2048, depth=5, batch=12288, report=10, test=200, save=400, patience=300, timeout=900)
    for name, value in sizes.items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--table-rate", type=float, default=0.1)
    p.add_argument("--minutes", type=float, default=1.4)
    o = p.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    job = Job(o, rank, world, device)
    job.say(f"rank {rank} of {world} on {device}, {job.table.weight.shape[0]} rows, Python {sys.version.split()[0]}")
    job.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
