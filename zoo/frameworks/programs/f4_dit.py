"""A diffusion transformer over latents: FSDP2, distributed checkpoints, JSON lines as a log."""
import json
import math
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


@dataclass
class Config:
    width: int = 512
    depth: int = 8
    heads: int = 8
    tokens: int = 256
    channels: int = 16
    batch: int = 8
    steps: int = 160
    lr: float = 2e-4
    log_every: int = 5
    save_every: int = 60
    folder: str = "checkpoints"
    timeout_s: int = 1800
    seed: int = 0


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.n1, self.n2 = nn.LayerNorm(c.width, elementwise_affine=False), nn.LayerNorm(c.width, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(c.width, 3 * c.width), nn.Linear(c.width, c.width)
        self.mlp = nn.Sequential(nn.Linear(c.width, 4 * c.width), nn.GELU(), nn.Linear(4 * c.width, c.width))
        self.ada = nn.Linear(c.width, 6 * c.width)

    def forward(self, x, cond):
        s1, b1, g1, s2, b2, g2 = self.ada(nn.functional.silu(cond))[:, None].chunk(6, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.n1(x) * (1 + s1) + b1).chunk(3, -1))
        x = x + g1 * self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.inp, self.pos = nn.Linear(c.channels, c.width), nn.Parameter(0.02 * torch.randn(c.tokens, c.width))
        self.time = nn.Sequential(nn.Linear(64, c.width), nn.SiLU(), nn.Linear(c.width, c.width))
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.depth))
        self.out = nn.Linear(c.width, c.channels)

    def forward(self, x, t):
        freq = torch.exp(-torch.arange(32, device=x.device) * math.log(1e4) / 32)
        angle = 1000 * t[:, None] * freq
        cond = self.time(torch.cat([angle.sin(), angle.cos()], -1).to(x.dtype))
        h = self.inp(x) + self.pos
        for block in self.blocks:
            h = block(h, cond)
        return self.out(h)


def latents(c, step, rank):
    g = torch.Generator().manual_seed(100003 * step + rank)
    base = torch.randn(c.batch, 1, c.channels, generator=g)
    wave = torch.sin(torch.arange(c.tokens) / 7.0)[None, :, None]
    return base * wave + 0.1 * torch.randn(c.batch, c.tokens, c.channels, generator=g), torch.rand(c.batch, generator=g)


def flow_loss(model, x, t):
    noise = torch.randn_like(x)
    mixed = (1 - t[:, None, None]) * x + t[:, None, None] * noise
    return (model(mixed, t) - (noise - x)).square().mean()


def write(record):
    print(json.dumps(record), flush=True)


def save(model, optimizer, step, c):
    began = time.time()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": moments, "step": step}, checkpoint_id=f"{c.folder}/{step:06d}")
    return time.time() - began


def resume(model, optimizer, c):
    done = sorted(n for n in os.listdir(c.folder) if os.path.exists(f"{c.folder}/{n}/.metadata")) if os.path.isdir(c.folder) else []
    if not done:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": moments, "step": 0}
    dcp.load(state, checkpoint_id=f"{c.folder}/{done[-1]}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    return state["step"]


def main():
    c = Config(**{k: type(getattr(Config, k))(v) for k, _, v in (a.partition("=") for a in sys.argv[1:])})
    cuda = torch.cuda.is_available()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=c.timeout_s))
    rank = dist.get_rank()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))
    torch.manual_seed(c.seed)
    model = DiT(c).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=c.lr)
    first = resume(model, optimizer, c)
    if rank == 0:
        write({"config": asdict(c), "world": dist.get_world_size(), "resumed_at": first})
    torch.manual_seed(c.seed + rank)
    for step in range(first + 1, c.steps + 1):
        x, t = latents(c, step, rank)
        loss = flow_loss(model, x.to(device), t.to(device))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % c.log_every == 0:
            total = norm.full_tensor()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                write({"step": step, "loss": round(mean.item() / dist.get_world_size(), 5), "norm": round(total.item(), 4)})
        if step % c.save_every == 0:
            seconds = save(model, optimizer, step, c)
            if rank == 0:
                write({"step": step, "saved_s": round(seconds, 2)})
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(weights, "dit.pt")
        write({"exported": len(weights)})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
