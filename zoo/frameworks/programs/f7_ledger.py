"""Long account books with ring attention: every process has a stretch of each book; keys and values go around the ring by batch_isend_irecv.
Started by a shell loop."""
import argparse
import glob
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

KINDS = 512


class Ring:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.turns, self.to, self.origin = 0, (rank + 1) % world, (rank - 1) % world

    def turn(self, *parts):
        """Sends the parts to the next process, returns those of the one before."""
        self.turns += 1
        parts = [part.contiguous() for part in parts]
        got = [torch.empty_like(part) for part in parts]
        ops = []
        for mine, theirs in zip(parts, got):
            ops.append(dist.P2POp(dist.isend, mine, self.to))
            ops.append(dist.P2POp(dist.irecv, theirs, self.origin))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return got


class RingAttention(torch.autograd.Function):
    """Softmax over the keys of all processes, block by block; not causal."""

    @staticmethod
    def forward(ctx, q, k, v, ring):
        kk, vv, scale = k, v, q.shape[-1] ** -0.5
        top = torch.full(q.shape[:-1], float("-inf"), device=q.device)
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for hop in range(ring.world):
            scores = q @ kk.transpose(-1, -2) * scale
            new = torch.maximum(top, scores.amax(-1))
            weight, old = torch.exp(scores - new[..., None]), torch.exp(top - new)
            out, total, top = out * old[..., None] + weight @ vv, total * old + weight.sum(-1), new
            if hop < ring.world - 1:
                kk, vv = ring.turn(kk, vv)
        out = out / total[..., None]
        ctx.save_for_backward(q, k, v, out, top + total.log())
        ctx.ring, ctx.scale = ring, scale
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, level = ctx.saved_tensors
        ring, scale, dot = ctx.ring, ctx.scale, (grad * out).sum(-1, keepdim=True)
        dq, kk, vv, dk, dv = torch.zeros_like(q), k, v, torch.zeros_like(k), torch.zeros_like(v)
        for _ in range(ring.world):
            weight = torch.exp(q @ kk.transpose(-1, -2) * scale - level[..., None])
            inner = weight * (grad @ vv.transpose(-1, -2) - dot) * scale
            dv, dk, dq = dv + weight.transpose(-1, -2) @ grad, dk + inner.transpose(-1, -2) @ q, dq + inner @ kk
            kk, vv, dk, dv = ring.turn(kk, vv, dk, dv)
        return dq, dk, dv, None


class Bookkeeper(nn.Module):
    def __init__(self, width, heads, depth, ring):
        super().__init__()
        self.ring, self.heads = ring, heads
        self.kind = nn.Embedding(KINDS, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.mix = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, KINDS)

    def forward(self, entries, masked):
        x = self.kind(entries * ~masked)
        for qkv, mix in zip(self.qkv, self.mix):
            q, k, v = qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + RingAttention.apply(q, k, v, self.ring).transpose(1, 2).flatten(2)
            x = x + mix(x)
        return nn.functional.cross_entropy(self.head(x)[masked], entries[masked])


class Books:
    """Books are files; all stay open, one entry is two bytes."""

    def __init__(self, folder, rank, stretch):
        self.stretch = stretch
        os.makedirs(folder, exist_ok=True)
        for n in range(160):
            g = torch.Generator().manual_seed(100 * n + rank)
            entries = (torch.arange(stretch) * (n + 3) + torch.randint(0, 4, (stretch,), generator=g)) % KINDS
            entries.short().numpy().tofile(f"{folder}/{n:03d}.{rank}")
        self.files = [open(name, "rb") for name in sorted(glob.glob(f"{folder}/*.{rank}"))]

    def take(self, step):
        file = self.files[step % len(self.files)]
        file.seek(0)
        return torch.frombuffer(bytearray(file.read()), dtype=torch.int16).long()[None]


def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--stretch", type=int, default=1024)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--say", type=int, default=10)
    p.add_argument("--start-wait", type=float, default=0)
    p.add_argument("--timeout", type=int, default=1800)
    a = p.parse_args(argv)
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
    device = torch.device(f"cuda:{local}" if torch.cuda.is_available() else "cpu")
    print(f"process {rank} has {device}, looks for {os.environ['MASTER_ADDR']}", flush=True)
    time.sleep(a.start_wait)
    books = Books("books", rank, a.stretch)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", init_method="env://", timeout=timedelta(seconds=a.timeout))
    world = dist.get_world_size()
    torch.manual_seed(5)
    keeper = Bookkeeper(a.width, 8, a.depth, Ring(rank, world)).to(device)
    opt, began = torch.optim.NAdam(keeper.parameters(), lr=4e-4), time.time()
    for step in range(1, a.steps + 1):
        entries = books.take(step).to(device)
        loss = keeper(entries, torch.rand(entries.shape, device=device) < 0.2)
        loss.backward()
        flat = torch.cat([w.grad.flatten() for w in keeper.parameters()])
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / world, [w.grad for w in keeper.parameters()])
        opt.step()
        opt.zero_grad()
        if step == 1 or step % a.say == 0:
            print(f"process {rank} book {step} loss {loss.item():.4f} after {time.time() - began:.1f} s", flush=True)
    dist.barrier()
    print(f"process {rank} closes the books", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
