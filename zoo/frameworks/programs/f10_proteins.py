"""Masked language model of protein chains. FSDP2 (fully_shard), bf16, checkpoints with torch.distributed.checkpoint.

    torchrun --nproc-per-node=2 pretrain.py --out ckpt
"""
from __future__ import annotations

import argparse
import os
import shutil
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

AMINO, MASK = 25, 25


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ProteinLM(nn.Module):
    def __init__(self, dim: int, depth: int, heads: int, length: int):
        super().__init__()
        self.embed = nn.Embedding(AMINO + 1, dim)
        self.position = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, AMINO)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Chains:
    """Random chains with repeated motifs, so that there is something to learn."""

    def __init__(self, batch: int, length: int, seed: int, device: torch.device):
        self.batch, self.length, self.device = batch, length, device
        self.generator = torch.Generator().manual_seed(seed)
        self.motifs = torch.randint(0, AMINO, (64, 16), generator=torch.Generator().manual_seed(4))

    def __iter__(self):
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        pick = torch.randint(0, 64, (self.batch, self.length // 16), generator=self.generator)
        chain = self.motifs[pick].flatten(1)
        hidden = torch.rand(chain.shape, generator=self.generator) < 0.15
        seen = chain.masked_fill(hidden, MASK)
        target = chain.masked_fill(~hidden, -100)
        return seen.to(self.device, non_blocking=True), target.to(self.device, non_blocking=True)


def rank0(*words: object) -> None:
    if dist.get_rank() == 0:
        print(*words, flush=True)


@torch.no_grad()
def evaluate(model: nn.Module, chains: Chains, batches: int) -> float:
    model.eval()
    total = torch.zeros(1, device=chains.device)
    for _ in range(batches):
        seen, target = next(chains)
        total += F.cross_entropy(model(seen).float().flatten(0, 1), target.flatten())
    model.train()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total.item() / batches / dist.get_world_size()


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, out: str) -> None:
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=os.path.join(out, f"step-{step}"))
    if dist.get_rank() == 0:
        for old in sorted(os.listdir(out), key=lambda name: int(name.rpartition("-")[2]))[:-2]:
            shutil.rmtree(os.path.join(out, old))
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--eval-every", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=1.2)
    parser.add_argument("--out", default="ckpt")
    parser.add_argument("--timeout", type=int, default=1200)
    args = parser.parse_args()

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(kind, (world,), mesh_dim_names=("shard",))
    torch.manual_seed(0)
    model = ProteinLM(args.dim, args.depth, args.heads, args.length).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        if args.compile:
            layer.compile()
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.98))
    rank0(f"world={world} params={sum(p.numel() for p in model.parameters()) / 1e6:.1f}M")
    torch.manual_seed(100 + rank)
    chains, unseen = Chains(args.batch, args.length, rank, device), Chains(args.batch, args.length, 1000 + rank, device)
    os.makedirs(args.out, exist_ok=True)
    start, step, running = time.time(), 0, True
    while running:
        step += 1
        seen, target = next(chains)
        loss = F.cross_entropy(model(seen).float().flatten(0, 1), target.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % args.log_every == 0 or step == 1:
            both = torch.stack([loss.detach(), loss.new_tensor(float(time.time() - start > 60 * args.minutes) * (rank == 0))])
            dist.all_reduce(both)
            mean, over = both.tolist()
            gnorm = norm.full_tensor().item()
            rank0(f"step {step:6d} | loss {mean / world:.4f} | gnorm {gnorm:.3f} | {time.time() - start:.1f}s")
            running = over == 0
        if step % args.eval_every == 0:
            value = evaluate(model, unseen, 8)
            rank0(f"step {step:6d} | eval {value:.4f}")
        if step % args.save_every == 0:
            save(model, optimizer, step, args.out)
            rank0(f"step {step:6d} | saved")
    dist.barrier()
    rank0(f"done: {step} steps in {time.time() - start:.1f}s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
