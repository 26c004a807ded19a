"""Embeddings of a graph of friends. The table is sharded: node n is on process n % world. Each step asks the owners for rows and sends gradients
back with all_to_all. Started by a shell loop, one process per line of it."""
import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton:
    @triton.jit
    def gather_rows(table, ids, out, width, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        node = tl.load(ids + row)
        columns = tl.arange(0, BLOCK)
        inside = columns < width
        tl.store(out + row * width + columns, tl.load(table + node * width + columns, mask=inside), mask=inside)


class Shard:
    """The rows that this process owns."""

    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        torch.manual_seed(50 + rank)
        self.rows = torch.randn(o.nodes // world, o.width, device=device) / o.width ** 0.5
        self.sums = torch.zeros(o.nodes // world, 1, device=device)

    def look_up(self, places):
        if not self.o.fused:
            return self.rows[places]
        out = torch.empty(len(places), self.o.width, device=self.device)
        gather_rows[(len(places),)](self.rows, places, out, self.o.width, BLOCK=triton.next_power_of_2(self.o.width))
        return out

    def learn(self, places, grad):
        """Adagrad by row."""
        self.sums.index_add_(0, places, grad.pow(2).mean(1, keepdim=True))
        self.rows.index_add_(0, places, -self.o.lr * grad / (self.sums[places].sqrt() + 1e-6))


class Exchange:
    """Rows of any nodes, from and to their owners."""

    def __init__(self, shard):
        self.shard, self.world, self.device = shard, shard.world, shard.device

    def ask(self, nodes):
        owner = nodes % self.world
        self.order = owner.argsort(stable=True)
        counts = torch.bincount(owner, minlength=self.world)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        self.out, self.into = counts.tolist(), theirs.tolist()
        wanted = nodes[self.order].contiguous()
        asked = torch.empty(sum(self.into), dtype=wanted.dtype, device=self.device)
        dist.all_to_all_single(asked, wanted, self.into, self.out)
        self.places = asked // self.world
        found = self.shard.look_up(self.places)
        rows = torch.empty(len(nodes), found.shape[1], device=self.device)
        dist.all_to_all_single(rows, found, self.out, self.into)
        back = torch.empty_like(rows)
        back[self.order] = rows
        return back

    def give_back(self, grad):
        mine = grad[self.order].contiguous()
        received = torch.empty(len(self.places), mine.shape[1], device=self.device)
        dist.all_to_all_single(received, mine, self.into, self.out)
        self.shard.learn(self.places, received)


def edges(o, step, rank):
    """Friends have numbers that are close; strangers are random."""
    g = torch.Generator().manual_seed(1009 * step + rank)
    a = torch.randint(0, o.nodes, (o.batch,), generator=g)
    friend = (a + torch.randint(1, 6, (o.batch,), generator=g)) % o.nodes
    stranger = torch.randint(0, o.nodes, (o.batch,), generator=g)
    return torch.cat([a, friend, stranger])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=200000)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--batch", type=int, default=4096)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--every", type=int, default=20)
    p.add_argument("--fused", action="store_true")
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    print(f"[{rank}] {device}, meeting at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", flush=True)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    world = dist.get_world_size()
    store = dist.PrefixStore("graph", dist.distributed_c10d._get_default_store())
    if rank == 0:
        store.set("edition", "2026-10")
    edition = store.get("edition").decode()
    shard = Shard(o, rank, world, device)
    exchange, began = Exchange(shard), time.time()
    total = torch.zeros(2, device=device)
    print(f"[{rank}] edition {edition}, {len(shard.rows)} rows of {o.width}", flush=True)
    for step in range(1, o.steps + 1):
        nodes = edges(o, step, rank).to(device)
        rows = exchange.ask(nodes).requires_grad_()
        a, friend, stranger = rows.chunk(3)
        near, far = (a * friend).sum(1), (a * stranger).sum(1)
        loss = F.softplus(-near).mean() + F.softplus(far).mean()
        loss.backward()
        exchange.give_back(rows.grad)
        total += torch.stack([loss.detach(), (near > far).float().mean()])
        if step <= 3 or step % o.every == 0:
            dist.all_reduce(total)
            print(f"[{rank}] step {step} sum {total[0].item():.3f} right {total[1].item():.3f} {time.time() - began:.1f}s", flush=True)
            total.zero_()
    torch.save(shard.rows, f"rows-{rank}.pt")
    dist.barrier()
    print(f"[{rank}] finished {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
