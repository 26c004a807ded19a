"""Mixture of experts for clicks in a shop: the experts are spread over a pair of ranks (all_to_all inside the pair), everything else is
data parallel over all ranks, the experts over the two pairs."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

ITEMS, LENGTH = 5000, 32


class Exchange(torch.autograd.Function):
    """Rows to other ranks of the group; the way back in the backward pass."""

    @staticmethod
    def forward(ctx, rows, sent, received, group):
        ctx.sent, ctx.received, ctx.group = sent, received, group
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), ctx.sent, ctx.received, group=ctx.group)
        return out, None, None, None


class Experts(nn.Module):
    def __init__(self, width, count, group):
        super().__init__()
        self.group, self.size, self.count = group, dist.get_world_size(group), count
        self.router = nn.Linear(width, count, bias=False)
        mine = count // self.size
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(mine))
        self.last = [0] * count

    def forward(self, x):
        flat = x.flatten(0, -2)
        gate, choice = self.router(flat).softmax(-1).max(-1)
        order = choice.argsort()
        counts = torch.bincount(choice, minlength=self.count)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        sent = counts.view(self.size, -1).sum(1).tolist()
        table = theirs.view(self.size, -1)
        received = table.sum(1).tolist()
        rows = Exchange.apply(flat[order], sent, received, self.group)
        kind = torch.arange(table.shape[1], device=x.device).repeat(self.size).repeat_interleave(table.flatten())
        done = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            at = (kind == i).nonzero().squeeze(1)
            done = done.index_copy(0, at, expert(rows[at]))
        back = Exchange.apply(done, received, sent, self.group)
        self.last = counts.tolist()
        return x + torch.zeros_like(flat).index_copy(0, order, back).mul(gate[:, None]).view_as(x)


class Shop(nn.Module):
    def __init__(self, a, group):
        super().__init__()
        self.items = nn.Embedding(ITEMS, a.width)
        self.memory = nn.ModuleList(nn.GRU(a.width, a.width, batch_first=True) for _ in range(a.depth))
        self.experts = nn.ModuleList(Experts(a.width, a.experts, group) for _ in range(a.depth))

    def forward(self, items):
        x = self.items(items)
        for memory, experts in zip(self.memory, self.experts):
            x = experts(x + memory(x)[0])
        return x @ self.items.weight.T


class Visits(Dataset):
    def __init__(self, count, rank, world):
        self.count, self.rank, self.world = count // world, rank, world

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i * self.world + self.rank)
        first, habit = torch.randint(0, ITEMS, (1,), generator=g), torch.randint(1, 40, (1,), generator=g)
        return (first + habit * torch.arange(LENGTH + 1)) % ITEMS


def reduce_all(params, group, size):
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat, group=group)
    for p, g in zip(params, flat.div_(size).split([p.numel() for p in params])):
        p.grad.copy_(g.view_as(p))


def load(net, world, device):
    """How many tokens each expert of each layer got, over all ranks."""
    counts = torch.tensor([layer.last for layer in net.experts], device=device)
    dist.all_reduce(counts)
    share = counts.float() / counts.sum(1, keepdim=True)
    return f"{share.max().item():.2f}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--experts", type=int, default=8)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--visits", type=int, default=30000)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--report", type=int, default=10)
    p.add_argument("--catalogue-seconds", type=float, default=0)
    p.add_argument("--timeout", type=int, default=1800)
    a = p.parse_args()
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{local}") if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    wait = timedelta(seconds=a.timeout)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=wait)
    pairs = [[r, r + 1] for r in range(0, world, 2)]
    pair, _ = dist.new_subgroups_by_enumeration(pairs, timeout=wait)
    twins, _ = dist.new_subgroups_by_enumeration([list(t) for t in zip(*pairs)], timeout=wait)
    if rank == 0 and a.catalogue_seconds:
        print("rebuilding the catalogue", flush=True)
        time.sleep(a.catalogue_seconds)
    dist.barrier()
    torch.manual_seed(5)
    net = Shop(a, pair).to(device)
    for q in net.experts.parameters():
        dist.broadcast(q.data, dist.get_global_rank(twins, 0), group=twins)
    shared = [q for name, q in net.named_parameters() if ".experts." not in name]
    special = [q for name, q in net.named_parameters() if ".experts." in name]
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    visits = DataLoader(Visits(a.visits, rank, world), a.batch, num_workers=a.workers, drop_last=True)
    print(f"rank {rank}: {sum(q.numel() for q in special) / 1e6:.1f} M weights in experts, {sum(q.numel() for q in shared) / 1e6:.1f} M others", flush=True)
    began, step = time.time(), 0
    for epoch in range(a.epochs):
        for items in visits:
            step += 1
            items = items.to(device)
            loss = nn.functional.cross_entropy(net(items[:, :-1]).flatten(0, 1), items[:, 1:].flatten())
            opt.zero_grad(set_to_none=False)
            loss.backward()
            for q in special:
                q.grad = torch.zeros_like(q) if q.grad is None else q.grad
            reduce_all(shared, None, world)
            reduce_all(special, twins, len(pairs))
            opt.step()
            if step == 1 or step % a.report == 0:
                value = loss.detach().clone()
                dist.all_reduce(value)
                most = load(net, world, device)
                if rank == 0:
                    print(f"{step:6d} loss {value.item() / world:.4f} busiest expert {most} {time.time() - began:.1f} s", flush=True)
        if rank == 0:
            torch.save(net.state_dict(), "shop.pt")
        dist.barrier()
    if rank == 0:
        print("all epochs done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
