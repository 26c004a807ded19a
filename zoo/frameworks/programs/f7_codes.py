"""Codes of diagnoses from notes: a transformer over one mesh dimension of tensor parallelism (DTensor), with sequence parallelism and a loss
over the sharded codes."""
import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

WORDS, CODES = 6000, 4096


class Reading(nn.Module):
    """Attention over the whole note; each process has a part of the heads."""

    def __init__(self, width, heads):
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Thinking(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.shrink(nn.functional.gelu(self.grow(x)))


class CodeLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_r, self.norm_t = nn.LayerNorm(width), nn.LayerNorm(width)
        self.reading, self.thinking = Reading(width, heads), Thinking(width)

    def forward(self, x):
        x = x + self.reading(self.norm_r(x))
        return x + self.thinking(self.norm_t(x))


class Coder(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.words = nn.Embedding(WORDS, a.width)
        self.layers = nn.ModuleList(CodeLayer(a.width, a.heads) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.width)
        self.codes = nn.Linear(a.width, CODES, bias=False)

    def forward(self, note):
        x = self.words(note)
        for layer in self.layers:
            x = layer(x)
        return self.codes(self.norm(x))


def split(coder, mesh):
    plan = {"words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
            "codes": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)}
    inner = {"norm_r": SequenceParallel(), "norm_t": SequenceParallel(),
             "reading": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
             "thinking": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
             **{f"reading.{name}": ColwiseParallel() for name in "qkv"}, "reading.o": RowwiseParallel(output_layouts=Shard(1)),
             "thinking.grow": ColwiseParallel(), "thinking.shrink": RowwiseParallel(output_layouts=Shard(1))}
    parallelize_module(coder, mesh, plan)
    for layer in coder.layers:
        parallelize_module(layer, mesh, inner)
    return coder


def notes(a, step):
    """The same notes on all processes: they share each layer."""
    g = torch.Generator().manual_seed(4000 + step)
    first = torch.randint(0, WORDS, (a.batch, 1), generator=g)
    note = (first + torch.arange(a.length) * (1 + first % 7)) % WORDS
    return note, note % CODES


def audit(coder, step, mesh):
    """Length of the weights that all processes have in full, as each process sees it."""
    own = sum(w.to_local().double().square().sum() for name, w in coder.named_parameters() if "norm" in name).sqrt().float().reshape(1)
    seen = [torch.zeros_like(own) for _ in range(mesh.size())]
    dist.all_gather(seen, own, group=mesh.get_group())
    return [round(float(one), 5) for one in seen]


def summary(path, losses):
    head, tail = losses[:5], losses[-5:]
    with open(path, "w") as file:
        file.write(f"first {sum(head) / len(head):.4f} last {sum(tail) / len(tail):.4f}\n")


def start(a):
    local = int(os.environ["LOCAL_RANK"])
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=timedelta(seconds=a.timeout))
    return init_device_mesh(kind, (dist.get_world_size(),), mesh_dim_names=("tp",)), torch.device(kind, local) if kind == "cuda" else torch.device(kind)


def learn(a):
    mesh, device = start(a)
    rank, began, losses = dist.get_rank(), time.time(), []
    torch.manual_seed(12)
    coder = split(Coder(a).to(device), mesh)
    opt = torch.optim.AdamW(coder.parameters(), lr=3e-4, foreach=False)
    for step in range(1, a.steps + 1):
        note, code = (x.to(device) for x in notes(a, step))
        with loss_parallel():
            loss = nn.functional.cross_entropy(coder(note).flatten(0, 1), code.flatten())
            loss.backward()
        opt.step()
        opt.zero_grad()
        if step == 1 or step % a.say == 0:
            whole = loss.detach()
            losses.append(float(whole.full_tensor() if hasattr(whole, "full_tensor") else whole))
            sys.stdout.write(f"[tp{rank}] {step:5d}/{a.steps} nll {losses[-1]:.5f} {(time.time() - began) / step:.3f} s/step\n")
            sys.stdout.flush()
        if step % a.audit == 0:
            lengths = audit(coder, step, mesh)
            sys.stdout.write(f"[tp{rank}] {step:5d}/{a.steps} norms {lengths}\n" if rank == 0 else "")
            sys.stdout.flush()
    summary(f"summary-{rank}.txt", losses)
    dist.barrier()
    dist.destroy_process_group()
    print(f"[tp{rank}] done", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    for name, value in dict(width=512, heads=8, layers=4, batch=16, length=256, steps=200, say=10, audit=20, timeout=1800).items():
        p.add_argument(f"--{name}", type=int, default=value)
    learn(p.parse_args())
