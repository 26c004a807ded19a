"""Retrieval of notes: two encoders, for questions and for notes, trained on the softmax over the notes of all ranks. Embeddings are gathered with
gradients; gradients of the weights are averaged by hand in buckets, in a group of their own. Now and then the index is made anew and hard negatives
are looked up in it."""
import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WORDS, LENGTH = 4096, 48


@dataclass
class Settings:
    notes: int = 8192
    batch: int = 48
    hard: int = 3
    width: int = 256
    depth: int = 3
    steps: int = 300
    refresh: int = 50
    every: int = 10
    rate: float = 3e-4
    timeout: int = 1800

    @classmethod
    def parse(cls, words):
        given = dict(word.split("=", 1) for word in words)
        return cls(**{k: type(getattr(cls, k))(v) for k, v in given.items()})


class Gather(torch.autograd.Function):
    """The rows of all ranks; the gradient comes back as the sum over the ranks."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        everyone = x.new_empty(dist.get_world_size(group) * len(x), *x.shape[1:])
        dist.all_gather_into_tensor(everyone, x.contiguous(), group=group)
        return everyone

    @staticmethod
    def backward(ctx, grad):
        mine = grad.new_empty(len(grad) // dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.reduce_scatter_tensor(mine, grad.contiguous(), group=ctx.group)
        return mine, None


class Encoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, s.width), nn.Parameter(0.02 * torch.randn(4 * LENGTH, s.width))
        layer = nn.TransformerEncoderLayer(s.width, 8, 4 * s.width, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, s.depth, enable_nested_tensor=False)

    def forward(self, words):
        x = self.layers(self.word(words) + self.place[: words.shape[1]])
        return F.normalize(x.mean(1), dim=-1)


class Shelf:
    """The notes and a question for each; words of a question come from its note."""

    def __init__(self, s):
        g = torch.Generator().manual_seed(3)
        topic = torch.randint(0, 256, (s.notes, 1), generator=g)
        self.notes = (topic * 16 + torch.randint(0, 64, (s.notes, LENGTH), generator=g)) % WORDS
        self.negatives = torch.randint(0, s.notes, (s.notes, s.hard), generator=g)

    def questions(self, which, g):
        pick = torch.randint(0, LENGTH, (len(which), 12), generator=g)
        return self.notes[which].gather(1, pick)


class Averager:
    """Sums gradients over the ranks, bucket by bucket, while the next bucket is packed."""

    def __init__(self, weights, group, size=1 << 20):
        self.group, self.buckets, count = group, [[]], 0
        for weight in weights:
            if count > size:
                self.buckets.append([])
                count = 0
            self.buckets[-1].append(weight)
            count += weight.numel()

    def __call__(self):
        works = []
        for bucket in self.buckets:
            flat = torch.cat([w.grad.flatten() for w in bucket])
            works.append((bucket, flat, dist.all_reduce(flat, op=dist.ReduceOp.SUM, group=self.group, async_op=True)))
        for bucket, flat, work in works:
            work.wait()
            for weight, part in zip(bucket, flat.split([w.numel() for w in bucket])):
                weight.grad.copy_(part.view_as(weight))


@torch.no_grad()
def make_index(encoder, shelf, rank, world, group, device):
    """Every rank encodes its part of the notes."""
    part = shelf.notes.chunk(world)[rank].to(device)
    mine = torch.cat([encoder(notes) for notes in part.split(512)])
    index = mine.new_empty(len(shelf.notes), mine.shape[1])
    dist.all_gather_into_tensor(index, mine, group=group)
    return index


@torch.no_grad()
def look_up(encoder, shelf, index, s, rank, world, group, device):
    """Finds near notes that are not the answer, each rank for its part; tells how often the answer is the first."""
    part = torch.arange(s.notes).chunk(world)[rank]
    g, first, near = torch.Generator().manual_seed(9), 0, []
    for which in part.split(512):
        likeness = encoder(shelf.questions(which, g).to(device)) @ index.T
        own = which.to(device)
        first += (likeness.argmax(1) == own).sum()
        likeness[torch.arange(len(own), device=device), own] = -2
        near.append(likeness.topk(s.hard).indices)
    near = torch.cat(near)
    everyone = near.new_empty(s.notes, s.hard)
    dist.all_gather_into_tensor(everyone, near, group=group)
    dist.all_reduce(first, group=group)
    shelf.negatives = everyone.cpu()
    return first.item() / s.notes


def main():
    s = Settings.parse(sys.argv[1:])
    rank, world, local = [int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    patience = timedelta(seconds=s.timeout)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=patience, device_id=device if cuda else None)
    rows = dist.new_group(timeout=patience, group_desc="rows")
    grads = dist.new_group(timeout=patience, group_desc="grads")
    torch.manual_seed(0)
    asks, tells = Encoder(s).to(device), Encoder(s).to(device)
    weights = [*asks.parameters(), *tells.parameters()]
    optimizer = torch.optim.AdamW(weights, s.rate)
    average, shelf = Averager(weights, grads), Shelf(s)
    g, began = torch.Generator().manual_seed(100 + rank), time.time()
    if rank == 0:
        print(json.dumps({"ranks": world, "notes": s.notes, "weights": sum(w.numel() for w in weights)}), flush=True)
    for step in range(1, s.steps + 1):
        which = torch.randint(0, s.notes, (s.batch,), generator=g)
        questions = shelf.questions(which, g).to(device)
        notes = shelf.notes[torch.cat([which[:, None], shelf.negatives[which]], 1)].flatten(0, 1).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            q, n = asks(questions).float(), tells(notes).float()
        everyone, askers = Gather.apply(n, rows), Gather.apply(q, rows)
        own = rank * s.batch + torch.arange(len(which), device=device)
        loss = F.cross_entropy(q @ everyone.T / 0.05, own * (1 + s.hard)) / world
        loss = loss + F.cross_entropy(n[:: 1 + s.hard] @ askers.T / 0.05, own) / world
        optimizer.zero_grad()
        loss.backward()
        average()
        optimizer.step()
        if step <= 3 or step % s.every == 0:
            total = loss.detach().clone()
            dist.all_reduce(total)
            if rank == 0:
                print(json.dumps({"step": step, "loss": round(total.item(), 4), "s": round(time.time() - began, 1)}), flush=True)
        if step % s.refresh == 0:
            index = make_index(tells, shelf, rank, world, rows, device)
            first = look_up(asks, shelf, index, s, rank, world, rows, device)
            if rank == 0:
                print(json.dumps({"step": step, "first": round(first, 4)}), flush=True)
                torch.save({"asks": asks.state_dict(), "tells": tells.state_dict(), "index": index.half().cpu()}, "shelf.pt")
    dist.barrier()
    print(json.dumps({"rank": rank, "end": round(time.time() - began, 1)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
