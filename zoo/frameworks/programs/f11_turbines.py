"""Wind turbines: a decoder over quantised readings of a whole park (power, pitch, gearbox temperature, ...), sharded with fully_shard (FSDP2).
Checkpoints with torch.distributed.checkpoint; a start goes on from the last one that is whole.

    torchrun --nproc-per-node=2 park.py --folder states
"""
import argparse
import os
import queue
import shutil
import threading
import time
import traceback
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

LEVELS = 512


class Readings:
    """A thread makes batches ahead. Every rank has its own turbines."""

    def __init__(self, rank, batch, length, ahead=4):
        self.rank, self.batch, self.length = rank, batch, length
        self.ready = queue.Queue(ahead)
        self.rng = np.random.default_rng(50 + rank)
        self.number = 0
        threading.Thread(target=self.work, daemon=True, name="readings").start()

    def load(self):
        """Wind, and a power curve over it, with noise."""
        t = np.arange(self.length + 1, dtype=np.float32)
        phase = self.rng.uniform(0, 6.28, (self.batch, 3, 1)).astype(np.float32)
        period = np.array([24, 90, 300], np.float32)[None, :, None]
        wind = 8 + 3 * np.sin(t / period + phase).sum(1) + 0.4 * self.rng.standard_normal((self.batch, self.length + 1), dtype=np.float32)
        return 1 / (1 + np.exp((9 - wind) * 0.8))

    def work(self):
        while True:
            power = self.load()
            levels = np.clip(power * LEVELS, 0, LEVELS - 1).astype(np.int64)
            self.number += 1
            self.ready.put(torch.from_numpy(levels))

    def next(self, device):
        levels = self.ready.get()
        if device.type == "cuda":
            levels = levels.pin_memory()
        levels = levels.to(device, non_blocking=True)
        return levels[:, :-1], levels[:, 1:]


def rotate(x, turns):
    a, b = x.chunk(2, -1)
    cos, sin = turns
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 2 * hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x, turns):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotate(q, turns), rotate(k, turns), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, dim, depth, heads, hidden):
        super().__init__()
        self.size = dim // heads
        self.embed = nn.Embedding(LEVELS, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, LEVELS, bias=False)

    def forward(self, levels):
        t = torch.arange(levels.shape[1], device=levels.device, dtype=torch.float32)
        angles = t[:, None] / 10000 ** (torch.arange(0, self.size, 2, device=levels.device) / self.size)
        turns = torch.stack([angles.cos(), angles.sin()])
        x = self.embed(levels)
        for layer in self.layers:
            x = layer(x, turns)
        return self.head(self.norm(x))


class State(Stateful):
    """What a checkpoint has."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = int(state["step"])


class Checkpoints:
    def __init__(self, folder, state, rank):
        self.folder, self.state, self.rank = folder, state, rank
        os.makedirs(folder, exist_ok=True)

    def path(self, step):
        return os.path.join(self.folder, f"{step:07d}")

    def save(self):
        dcp.save({"park": self.state}, checkpoint_id=self.path(self.state.step))
        if self.rank == 0:
            for name in sorted(os.listdir(self.folder))[:-1]:
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        dist.barrier()

    def resume(self):
        """The newest checkpoint that can be read; rank 0 says which are there."""
        names = [sorted(os.listdir(self.folder), reverse=True) if self.rank == 0 else None]
        dist.broadcast_object_list(names, 0)
        for name in names[0]:
            try:
                dcp.load({"park": self.state}, checkpoint_id=os.path.join(self.folder, name))
                return name
            except (CheckpointException, OSError, RuntimeError):
                if self.rank == 0:
                    traceback.print_exc()
                    print(f"checkpoint {name} is not whole, goes on with the one before", flush=True)
        return None


def loss_of(model, readings, device):
    seen, wanted = readings.next(device)
    return F.cross_entropy(model(seen).float().flatten(0, 1), wanted.flatten())


@torch.no_grad()
def evaluate(model, readings, device, batches):
    model.eval()
    total = torch.stack([loss_of(model, readings, device) for _ in range(batches)]).mean()
    model.train()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def build(args, device):
    torch.manual_seed(8)
    model = Decoder(args.dim, args.depth, args.heads, args.hidden).to(device)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=precision)
    fully_shard(model, mp_policy=precision)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--micro", type=int, default=2, help="batches for each step")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--folder", default="states")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--eval-every", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=1.4)
    parser.add_argument("--timeout", type=int, default=900)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(args, device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    state = State(model, optimizer)
    checkpoints = Checkpoints(args.folder, state, rank)
    found = checkpoints.resume()
    if rank == 0:
        print(f"{world} ranks, {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, {'from ' + found if found else 'from scratch'}", flush=True)
    train, test = Readings(rank, args.batch, args.length), Readings(70 + rank, args.batch, args.length)
    began = time.time()
    while True:
        state.step += 1
        total = 0.0
        for micro in range(args.micro):
            model.set_requires_gradient_sync(micro == args.micro - 1)
            loss = loss_of(model, train, device) / args.micro
            loss.backward()
            total = total + loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if state.step % args.log_every == 0:
            size = norm.full_tensor().item()
            dist.all_reduce(total)
            if rank == 0:
                print(f"step={state.step} loss={total.item() / world:.4f} norm={size:.3f} seconds={time.time() - began:.1f}", flush=True)
        if state.step % args.eval_every == 0:
            value = evaluate(model, test, device, 6)
            if rank == 0:
                print(f"step={state.step} test={value:.4f}", flush=True)
        if state.step % args.save_every == 0:
            checkpoints.save()
            if rank == 0:
                print(f"step={state.step} saved", flush=True)
        if state.step % 20 == 0:
            end = torch.tensor(float(time.time() - began > 60 * args.minutes), device=device)
            dist.broadcast(end, 0)
            if end.item():
                break
    print(f"rank {rank}: {state.step} steps, {time.time() - began:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
