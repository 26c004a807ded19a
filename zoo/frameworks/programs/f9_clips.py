"""What happens next in short clips: attention over space and over time in turns, sharded with fully_shard, blocks recomputed in the backward pass.
A thread of each rank reads clips ahead."""
import argparse
import os
import queue
import random
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SIDE, PATCH, FRAMES = 64, 8, 9


class Mix(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, causal):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.space, self.time = Mix(width), Mix(width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        clips, frames, places, width = x.shape
        x = x + self.space(x.flatten(0, 1), False).unflatten(0, (clips, frames))
        y = self.time(x.transpose(1, 2).flatten(0, 1), True).unflatten(0, (clips, places))
        x = x + y.transpose(1, 2)
        return x + self.mlp(x)


def patches(clip):
    """Patches of all frames as rows, brightness around zero."""
    x = clip.float() / 127.5 - 1
    return x.unflatten(-1, (-1, PATCH)).unflatten(-3, (-1, PATCH)).permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(2, 3)


class Foresight(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        count = (SIDE // PATCH) ** 2
        self.enter, self.leave = nn.Linear(PATCH * PATCH, width), nn.Linear(width, PATCH * PATCH)
        self.place, self.when = nn.Parameter(0.02 * torch.randn(count, width)), nn.Parameter(0.02 * torch.randn(FRAMES - 1, 1, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, rows):
        x = self.enter(rows) + self.place + self.when
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


class Shelter:
    """The video store. A clip is some balls that bounce off the walls."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def fetch(self, count):
        g = torch.Generator().manual_seed(self.rng.randrange(1 << 40))
        at, speed = torch.rand(count, 1, 4, 2, generator=g), 0.12 * torch.randn(count, 1, 4, 2, generator=g)
        when = torch.arange(FRAMES)[None, :, None, None]
        at = 1 - ((at + speed * when) % 2 - 1).abs()
        grid = torch.linspace(0, 1, SIDE)
        far = (grid[:, None] - at[..., 0, None, None]) ** 2 + (grid[None, :] - at[..., 1, None, None]) ** 2
        return (255 * (far < 0.008).any(2)).to(torch.uint8)


class Ahead(threading.Thread):
    """Reads batches ahead of the training."""

    def __init__(self, store, count, depth=4):
        super().__init__(name="ahead", daemon=True)
        self.store, self.count, self.ready = store, count, queue.Queue(depth)

    def run(self):
        number = 0
        while True:
            number += 1
            clips = self.store.fetch(self.count)
            self.ready.put(clips)


def build(o, mesh, device):
    torch.manual_seed(40)
    with torch.device(device):
        net = Foresight(o.width, o.depth)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if device.type == "cuda" else MixedPrecisionPolicy()
    for i, block in enumerate(net.blocks):
        net.blocks[i] = fully_shard(checkpoint_wrapper(block), mesh=mesh, mp_policy=mixed)
    return fully_shard(net, mesh=mesh, mp_policy=mixed)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=6)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--save", type=int, default=100)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (world,), mesh_dim_names=("shard",))
    net = build(o, mesh, device)
    cut = torch.compile(patches) if o.compile else patches
    optimizer = torch.optim.AdamW(net.parameters(), o.lr, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, 20)
    ahead = Ahead(Shelter(60 + rank), o.batch)
    ahead.start()
    if rank == 0:
        print(f"foresight: {sum(w.numel() for w in net.parameters()) / 1e6:.1f} M parameters on {world} x {device.type}", flush=True)
    began = time.time()
    for step in range(1, o.steps + 1):
        clips = ahead.ready.get()
        rows = cut(clips.to(device, non_blocking=True))
        guess = net(rows[:, :-1])
        loss = F.mse_loss(guess.float(), rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        warm.step()
        if step <= 3 or step % o.every == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
            whole = norm.full_tensor().item()
            if rank == 0:
                print(f"clip step {step:5d}  mse {mean.item() / world:.5f}  norm {whole:.3f}  {time.time() - began:6.1f} s", flush=True)
        if step % o.save == 0:
            weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
            if rank == 0:
                torch.save(weights, f"foresight-{step}.pt")
                print(f"clip step {step:5d}  weights written", flush=True)
    dist.barrier()
    if rank == 0:
        print("no more clips", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
