"""Click prediction for an online market (DLRM style). Embedding tables are spread by row over the processes, looked up with all_to_all; the dense
part is replicated and its gradients are averaged in one flat buffer. Started by a shell loop that sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT."""
import argparse
import datetime
import logging
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

LOG = logging.getLogger("market")
TABLES = {"item": 2000000, "seller": 300000, "shopper": 1000000, "query": 500000, "category": 6000, "city": 20000}
DENSE = 13


class Clicks:
    """Synthetic log of clicks; every process reads its own days."""

    def __init__(self, rank, batch, days, per_day):
        self.rank, self.batch, self.days, self.per_day = rank, batch, days, per_day

    def day(self, number):
        rng = np.random.default_rng([self.rank, number])
        for _ in range(self.per_day):
            dense = rng.standard_normal((self.batch, DENSE), dtype=np.float32)
            sparse = {name: (rng.random(self.batch) ** 3 * rows).astype(np.int64) for name, rows in TABLES.items()}
            score = dense[:, 0] + np.sin(sparse["item"] * 0.01) + 0.5 * np.cos(sparse["shopper"] * 0.1)
            clicked = (rng.random(self.batch) < 1 / (1 + np.exp(2 - score))).astype(np.float32)
            yield dense, sparse, clicked

    def __iter__(self):
        for number in range(self.days):
            yield from self.day(number)


class Exchange(torch.autograd.Function):
    """all_to_all of rows; the gradient goes the way back."""

    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = out_splits, in_splits
        y = x.new_empty(sum(out_splits), x.shape[1])
        dist.all_to_all_single(y, x.contiguous(), out_splits, in_splits)
        return y

    @staticmethod
    def backward(ctx, grad):
        out_splits, in_splits = ctx.splits
        x = grad.new_empty(sum(in_splits), grad.shape[1])
        dist.all_to_all_single(x, grad.contiguous(), in_splits, out_splits)
        return x, None, None


class Tables(torch.nn.Module):
    def __init__(self, rank, world, dim, device):
        super().__init__()
        self.rank, self.world, self.device = rank, world, device
        self.rows = torch.nn.ParameterDict({name: torch.nn.Parameter(0.05 * torch.randn(rows // world + 1, dim, device=device)) for name, rows in TABLES.items()})

    def look_up(self, name, ids):
        """Row `i` lives on process i % world."""
        order = torch.argsort(ids % self.world, stable=True)
        counts = torch.bincount(ids % self.world, minlength=self.world)
        wanted = torch.empty_like(counts)
        dist.all_to_all_single(wanted, counts)
        send, receive = counts.tolist(), wanted.tolist()
        asked = ids.new_empty(sum(receive))
        dist.all_to_all_single(asked, ids[order], receive, send)
        found = Exchange.apply(F.embedding(asked // self.world, self.rows[name]), send, receive)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return found[back]

    def forward(self, sparse):
        found = {}
        for name in sorted(TABLES):
            found[name] = self.look_up(name, sparse[name])
        return [found[name] for name in TABLES]


class Dense(torch.nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.bottom = torch.nn.Sequential(torch.nn.Linear(DENSE, width), torch.nn.ReLU(), torch.nn.Linear(width, dim))
        pairs = (len(TABLES) + 1) * len(TABLES) // 2
        self.top = torch.nn.Sequential(torch.nn.Linear(dim + pairs, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
                                       torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))

    def forward(self, dense, rows):
        low = self.bottom(dense)
        x = torch.stack([low, *rows], 1)
        i, j = torch.triu_indices(x.shape[1], x.shape[1], 1, device=x.device)
        return self.top(torch.cat([low, torch.bmm(x, x.transpose(1, 2))[:, i, j]], 1))[:, 0]


def average(net, world):
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    flat /= world
    for p, g in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
        p.grad.copy_(g.view_as(p))


def move(batch, device):
    dense, sparse, clicked = batch
    return torch.from_numpy(dense).to(device), {k: torch.from_numpy(v).to(device) for k, v in sparse.items()}, torch.from_numpy(clicked).to(device)


def all_go_on(more, device):
    """Whether any process still has a batch."""
    flag = torch.tensor([float(more)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return flag.item() > 0


def report(step, history, rank, world, began):
    """Losses of all processes, as Python objects."""
    mine, all_of_them = {"rank": rank, "loss": float(np.mean(history)), "seen": step}, [None] * world
    dist.all_gather_object(all_of_them, mine)
    if rank == 0:
        LOG.info("step %d logloss %.4f by process %s after %.1f s", step, np.mean([m["loss"] for m in all_of_them]), [round(m["loss"], 4) for m in all_of_them], time.time() - began)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=16384)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--width", type=int, default=2048)
    ap.add_argument("--days", type=int, default=1000)
    ap.add_argument("--per-day", type=int, default=200)
    ap.add_argument("--minutes", type=float, default=1.2)
    ap.add_argument("--every", type=int, default=20)
    ap.add_argument("--save", type=int, default=200)
    ap.add_argument("--timeout", type=int, default=600)
    o = ap.parse_args()
    rank, world, local = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s p{rank} %(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=o.timeout))
    torch.manual_seed(1)
    net = Dense(o.dim, o.width).to(device)
    torch.manual_seed(2 + rank)
    tables = Tables(rank, world, o.dim, device)
    rule = torch.optim.Adam(net.parameters(), 1e-3)
    row_rule = torch.optim.SGD(tables.parameters(), 0.5)
    LOG.info("process %d of %d, %.0f M rows here", rank, world, sum(p.shape[0] for p in tables.parameters()) / 1e6)
    began, step, history = time.time(), 0, []
    for batch in Clicks(rank, o.batch, o.days, o.per_day):
        step += 1
        dense, sparse, clicked = move(batch, device)
        logits = net(dense, tables(sparse))
        loss = F.binary_cross_entropy_with_logits(logits, clicked)
        rule.zero_grad()
        row_rule.zero_grad()
        loss.backward()
        average(net, world)
        rule.step()
        row_rule.step()
        if step % 4 == 0:
            history.append(loss.item())
        if step % o.every == 0:
            report(step, history[-o.every:], rank, world, began)
        if step % o.save == 0:
            torch.save({"tables": {k: v.detach().cpu() for k, v in tables.rows.items() if k in ("city", "category")}, "net": net.state_dict()}, f"market-{rank}.pt")
            LOG.info("step %d saved, dense weights %.6f", step, sum(p.detach().double().abs().sum().item() for p in net.parameters()))
            if not all_go_on(time.time() - began < 60 * o.minutes, device):
                break
    dist.barrier()
    LOG.info("ends after %d steps, %.1f s", step, time.time() - began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
