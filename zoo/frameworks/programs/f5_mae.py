"""Masked autoencoder over spectrogram patches: FSDP2, every rank writes its part of the distributed checkpoint."""
import argparse
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

PATCHES, PIXELS = 128, 192


class Block(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.n2(x))


class MaskedAutoencoder(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed, self.place = nn.Linear(PIXELS, width), nn.Embedding(PATCHES, width)
        self.encoder = nn.ModuleList(Block(width) for _ in range(depth))
        self.hidden = nn.Linear(1, width, bias=False)
        self.decoder = Block(width)
        self.out = nn.Linear(width, PIXELS)

    def forward(self, patches, keep):
        b, n, _ = patches.shape
        x = self.embed(patches) + self.place(torch.arange(n, device=patches.device))
        x = torch.gather(x, 1, keep[..., None].expand(-1, -1, x.shape[-1]))
        for block in self.encoder:
            x = block(x)
        full = self.hidden(torch.ones(b, n, 1, device=x.device)).to(x.dtype)
        full = full.scatter(1, keep[..., None].expand(-1, -1, x.shape[-1]), x) + self.place(torch.arange(n, device=patches.device))
        guess = self.out(self.decoder(full))
        hidden = torch.ones(b, n, device=x.device).scatter(1, keep, 0.0)
        return (((guess - patches) ** 2).mean(-1) * hidden).sum() / hidden.sum()


class Spectrograms:
    """Rank 0 builds the index of the recordings, the other waits for it; every rank then reads its own part."""

    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        path = "index.npy"
        if rank == 0:
            rng, until, rows = np.random.default_rng(4), time.time() + args.index_seconds, []
            while not rows or time.time() < until:
                rows.append(rng.integers(0, 1 << 30, 4096))
                if time.time() < until and len(rows) % 25 == 0:
                    print(f"indexed {4096 * len(rows)} recordings", flush=True)
                    time.sleep(min(5, max(0, until - time.time())))
            np.save(path, rows[0])
        dist.barrier()
        self.index = np.load(path)

    def batch(self, step):
        a = self.args
        at = (step * self.world + self.rank) * a.batch
        g = torch.Generator().manual_seed(int(self.index[at % len(self.index)]))
        tone = torch.rand(a.batch, 1, 1, generator=g) * 3 * torch.arange(PATCHES)[None, :, None] + torch.linspace(0, 6, PIXELS) * torch.rand(a.batch, 1, 1, generator=g)
        patches = torch.sin(tone) + 0.1 * torch.randn(a.batch, PATCHES, PIXELS, generator=g)
        keep = torch.rand(a.batch, PATCHES, generator=g).argsort(1)[:, :PATCHES // 4]
        return patches, keep


class Progress(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = int(state["step"])


def save(progress, folder, step):
    began = time.time()
    dcp.save({"progress": progress}, checkpoint_id=os.path.join(folder, f"step-{step}"))
    return time.time() - began


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--save-every", type=int, default=40)
    p.add_argument("--folder", default="ckpt")
    p.add_argument("--index-seconds", type=float, default=0)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    count = torch.cuda.device_count()
    kind = "cuda" if count else "cpu"
    if count:
        if count < int(os.environ["LOCAL_WORLD_SIZE"]):
            os.environ["NCCL_HOSTID"] = f"n{rank}"
        torch.cuda.set_device(local % count)
        torch.cuda.init()
    dist.init_process_group("cpu:gloo,cuda:nccl" if count else "gloo", timeout=timedelta(seconds=args.timeout))
    world = dist.get_world_size()
    device = torch.device(kind, local % count if count else None)
    mesh = init_device_mesh(kind, (world,), mesh_dim_names=("shard",))
    data = Spectrograms(args, rank, world)
    torch.manual_seed(21)
    model = MaskedAutoencoder(args.width, args.depth).to(device)
    for block in model.encoder:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    progress = Progress(model, optimizer)
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters on {world} ranks", flush=True)
    began = time.time()
    for step in range(1, args.steps + 1):
        patches, keep = (x.to(device) for x in data.batch(step))
        loss = model(patches, keep)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress.step = step
        if step == 1 or step % args.log_every == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            if rank == 0:
                print(f"[{time.time() - began:6.1f}s] step {step:4d} | loss {shown.item() / world:.4f} | grad norm {norm.item():.3f}", flush=True)
        if step % args.save_every == 0:
            seconds = save(progress, args.folder, step)
            if rank == 0:
                print(f"[{time.time() - began:6.1f}s] step {step:4d} | checkpoint in {seconds:.1f} s", flush=True)
    dist.barrier()
    if rank == 0:
        print("pretraining finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
