"""A language model of melodies on a 2 x 2 mesh: tensor parallel (DTensor) inside a pair, data parallel between the pairs."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

NOTES = 256


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.size = width // heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.o = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        y = self.before(x)
        q, k, v = (f(y).view(b, n, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, -1))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Melodies(nn.Module):
    def __init__(self, width, depth, heads, length):
        super().__init__()
        self.note, self.place = nn.Embedding(NOTES, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, NOTES, bias=False)

    def forward(self, notes):
        x = self.note(notes) + self.place.weight[: notes.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def own(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Corpus:
    """Every pair reads its own songs; both ranks of a pair read the same ones."""

    def __init__(self, args, pair):
        self.args, self.pair = args, pair

    def batch(self, step):
        g = torch.Generator().manual_seed(7919 * step + self.pair)
        start = torch.randint(0, 128, (self.args.batch, 1), generator=g)
        jump = torch.randint(1, 7, (self.args.batch, 1), generator=g)
        songs = (start + jump * torch.arange(self.args.length + 1)) % 128 + 64
        return songs[:, :-1], songs[:, 1:]


def average(params, group, size):
    """Averages the gradients of the pairs, in buckets of about a megabyte."""
    buckets, room = [[]], 0
    for p in params:
        if room > 1 << 18:
            buckets.append([])
            room = 0
        buckets[-1].append(own(p.grad))
        room += own(p.grad).numel()
    for bucket in buckets:
        flat = torch.cat([g.flatten() for g in bucket])
        dist.all_reduce(flat, group=group)
        flat /= size
        for g, part in zip(bucket, flat.split([g.numel() for g in bucket])):
            g.copy_(part.view_as(g))


def clip(params, group, most=1.0):
    """The norm of all gradients: those of sharded weights are summed over the pair."""
    sharded = sum((own(p.grad) ** 2).sum() for p in params if isinstance(p, DTensor))
    whole = sum((p.grad**2).sum() for p in params if not isinstance(p, DTensor))
    dist.all_reduce(sharded, group=group)
    norm = (sharded + whole).sqrt()
    for p in params:
        own(p.grad).mul_(torch.clamp(most / (norm + 1e-6), max=1.0))
    return norm


def spread(params, group):
    """How far the weights of the two replicas are apart."""
    mine = torch.stack([own(p.detach()).double().abs().sum() for p in params])
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN, group=group)
    dist.all_reduce(high, op=dist.ReduceOp.MAX, group=group)
    return ((high - low) / high).max()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tensor", type=int, default=2)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--report", type=int, default=10)
    p.add_argument("--save", type=int, default=200)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind, local) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    wait = timedelta(seconds=args.timeout)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=wait)
    grid = torch.arange(world).view(-1, args.tensor)
    pairs, _ = dist.new_subgroups_by_enumeration(grid.tolist(), timeout=wait)
    replicas, _ = dist.new_subgroups_by_enumeration(grid.T.tolist(), timeout=wait)
    mesh = DeviceMesh.from_group([replicas, pairs], kind, mesh=grid, mesh_dim_names=("data", "tensor"))
    torch.manual_seed(31)
    net = Melodies(args.width, args.depth, args.heads, args.length).to(device)
    for layer in net.layers:
        parallelize_module(layer, mesh["tensor"], {name: ColwiseParallel() for name in ("q", "k", "v", "up")} | {name: RowwiseParallel() for name in ("o", "down")})
    params = list(net.parameters())
    opt = torch.optim.AdamW(params, lr=3e-4, foreach=False)
    corpus = Corpus(args, mesh.get_local_rank("data"))
    print(f"rank {rank}: pair {mesh.get_local_rank('data')}, part {mesh.get_local_rank('tensor')}, {sum(own(q).numel() for q in params) / 1e6:.1f} M parameters", flush=True)
    began = time.time()
    for step in range(1, args.steps + 1):
        notes, following = (x.to(device) for x in corpus.batch(step))
        loss = nn.functional.cross_entropy(net(notes).flatten(0, 1), following.flatten())
        loss.backward()
        average(params, replicas, world // args.tensor)
        norm = clip(params, pairs)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step == 1 or step % args.report == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown, group=replicas)
            apart = spread(params, replicas)
            if rank == 0:
                print(f"step {step} loss {shown.item() * args.tensor / world:.4f} norm {norm.item():.3f} replicas apart {apart.item():.1e} ({(time.time() - began) / step:.3f} s/step)", flush=True)
        if step % args.save == 0:
            if mesh.get_local_rank("data") == 0:
                torch.save({name: own(w.detach()).cpu() for name, w in net.named_parameters()}, f"melodies-{step}-part{mesh.get_local_rank('tensor')}.pt")
            dist.barrier()
    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
