"""Click prediction with tables that are spread over the ranks: rows travel by all-to-all, the dense part is averaged by hand.
Two groups over the same ranks, one for the tables and one for the dense part."""
import argparse
import logging
import os
import queue
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("ads")


class Swap(torch.autograd.Function):
    """All-to-all of equal parts; the gradient travels back the same way."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad, group=ctx.group)
        return out, None


class SpreadTables(nn.Module):
    """Field f belongs to rank f % world. Ids of all fields come in for the own samples, vectors of all fields go out."""

    def __init__(self, fields, rows, width, rank, world, group):
        super().__init__()
        self.mine = [f for f in range(fields) if f % world == rank]
        self.order = torch.tensor([f for r in range(world) for f in range(fields) if f % world == r])
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in self.mine)
        self.world, self.group = world, group

    def forward(self, ids):
        n = ids.shape[0]
        wanted = ids[:, self.order.to(ids.device)].view(n, self.world, -1).transpose(0, 1).contiguous()
        asked = torch.empty_like(wanted)
        dist.all_to_all_single(asked, wanted, group=self.group)
        found = torch.stack([table(asked[..., k]) for k, table in enumerate(self.tables)], 2)
        return Swap.apply(found, self.group).transpose(0, 1).reshape(n, -1)


class Clicks:
    """Batches come from a thread, two ahead."""

    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        self.state, self.ready = threading.Lock(), queue.Queue(maxsize=2)
        self.seen = 0
        self.thread = threading.Thread(target=self.fill, daemon=True)
        self.thread.start()

    def make(self, step):
        a = self.args
        g = torch.Generator().manual_seed(step * 64 + self.rank)
        ids = (torch.rand(a.batch, a.fields, generator=g) ** 4 * a.rows).long()
        dense = torch.rand(a.batch, 16, generator=g)
        score = ((ids % 7).float().mean(1) - 3) + dense[:, :4].sum(1) - 2
        return ids, dense, (torch.rand(a.batch, generator=g) < torch.sigmoid(3 * score)).float()

    def fill(self):
        step = 0
        while True:
            step += 1
            batch = self.make(step)
            with self.state:
                self.seen += len(batch[0])
            self.ready.put(batch)

    def next(self):
        return self.ready.get()


def pick_device(rank, local):
    n = torch.cuda.device_count()
    if n == 0:
        return torch.device("cpu")
    if n < int(os.environ["LOCAL_WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = f"n{rank}"
    torch.cuda.set_device(local % n)
    return torch.device("cuda", local % n)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fields", type=int, default=16)
    p.add_argument("--rows", type=int, default=200000)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--batch", type=int, default=8192)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--report", type=int, default=10)
    p.add_argument("--evaluate", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    rank, local, world = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s", datefmt="%H:%M:%S")
    device = pick_device(rank, local)
    limit = timedelta(seconds=args.timeout)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=limit)
    sparse, dense_group = dist.new_group(list(range(world)), timeout=limit), dist.new_group(list(range(world)), timeout=limit)
    torch.manual_seed(100 + rank)
    tables = SpreadTables(args.fields, args.rows, args.width, rank, world, sparse).to(device)
    torch.manual_seed(7)
    top = nn.Sequential(nn.Linear(args.fields * args.width + 16, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.Adam([*tables.parameters(), *top.parameters()], lr=args.lr)
    clicks = Clicks(args, rank)
    log.info("%d tables of %d rows on %s", len(tables.mine), args.rows, device)
    began = time.time()
    for step in range(1, args.steps + 1):
        ids, dense, label = (x.to(device) for x in clicks.next())
        logit = top(torch.cat([tables(ids), dense], 1))[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(logit, label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grads = torch.cat([q.grad.flatten() for q in top.parameters()])
        dist.all_reduce(grads, group=dense_group)
        nn.utils.vector_to_parameters(grads / world, [q.grad for q in top.parameters()])
        optimizer.step()
        if step == 1 or step % args.report == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, group=dense_group)
            if rank == 0:
                log.info("step %d loss %.4f clicks %.4f samples/s %.0f", step, mean.item() / world, label.mean().item(), step * args.batch * world / (time.time() - began))
        if step % args.evaluate == 0:
            with torch.no_grad():
                ids, dense, label = (x.to(device) for x in clicks.make(10**6 + step))
                right = ((top(torch.cat([tables(ids), dense], 1))[:, 0] > 0) == (label > 0.5)).float().mean()
            dist.all_reduce(right, group=dense_group)
            if rank == 0:
                log.info("step %d accuracy %.4f", step, right.item() / world)
            torch.save(tables.state_dict(), f"tables-{rank}.pt")
            dist.barrier(group=sparse)
    dist.barrier()
    log.info("end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
