"""Pretraining on melodies: a decoder of notes with fully_shard; checkpoints with torch.distributed.checkpoint, plans go through a Gloo group."""
import argparse
import os
import shutil
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

NOTES = 1024


class Bar(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.n2(x))


class Composer(nn.Module):
    def __init__(self, width, depth, length):
        super().__init__()
        self.note, self.place = nn.Embedding(NOTES, width), nn.Embedding(length, width)
        self.bars = nn.ModuleList(Bar(width, 8) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, NOTES, bias=False)

    def forward(self, notes):
        x = self.note(notes) + self.place.weight[: notes.shape[1]]
        for bar in self.bars:
            x = bar(x)
        return self.head(self.norm(x))


def melodies(step, rank, o):
    g = torch.Generator().manual_seed(31 * step + rank)
    key, move = torch.randint(0, NOTES, (2, o.batch, 1), generator=g)
    tune = key + (1 + move % 12) * torch.arange(o.length + 1)
    weight = torch.rand(o.batch, 1, generator=g) + 0.5
    return tune % NOTES, weight


def save(model, optimizer, step, o, group):
    folder = os.path.join(o.folder, f"step-{step}")
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder, process_group=group)
    if dist.get_rank() == 0:
        older = os.path.join(o.folder, f"step-{step - 2 * o.save_every}")
        shutil.rmtree(older, ignore_errors=True)
    return folder


def restore(model, optimizer, folder, group):
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder, process_group=group)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)


def export(model, path):
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(whole, path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--save-every", type=int, default=40)
    p.add_argument("--print-every", type=int, default=10)
    p.add_argument("--restore", default="")
    p.add_argument("--folder", default="ckpt")
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    patience = timedelta(seconds=o.timeout)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=patience)
    plans = dist.new_group(backend="gloo", timeout=patience)
    torch.manual_seed(11)
    model = Composer(o.width, o.depth, o.length).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if cuda else MixedPrecisionPolicy()
    for bar in model.bars:
        fully_shard(bar, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    if o.restore:
        restore(model, optimizer, o.restore, plans)
    if rank == 0:
        print(f"model: {sum(w.numel() for w in model.parameters()) / 1e6:.2f} M parameters, sharded over {dist.get_world_size()} ranks", flush=True)
    began = time.time()
    for step in range(1, o.steps + 1):
        notes, weight = (part.to(device) for part in melodies(step, rank, o))
        logits = model(notes[:, :-1]).float()
        each = F.cross_entropy(logits.flatten(0, 1), notes[:, 1:].flatten(), reduction="none").view(o.batch, -1).mean(1, keepdim=True)
        loss = (each * weight).sum() / weight.sum()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step <= 2 or step % o.print_every == 0:
            total = loss.detach().clone()
            dist.all_reduce(total)
            size = norm.full_tensor().item()
            if rank == 0:
                print(f"step {step}/{o.steps} loss {total.item() / dist.get_world_size():.4f} norm {size:.3f} time {time.time() - began:.1f}", flush=True)
        if step % o.save_every == 0:
            folder = save(model, optimizer, step, o, plans)
            if rank == 0:
                print(f"step {step}: saved {folder}", flush=True)
    export(model, "composer.pt")
    dist.barrier()
    if rank == 0:
        print("exported composer.pt", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
