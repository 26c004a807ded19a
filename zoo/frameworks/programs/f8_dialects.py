"""From one dialect to another, two pipeline stages by hand: stage 0 has the embedding and the first layers, stage 1 the rest and the loss. A header
with the shape goes before each micro-batch; sentences of a batch have one length, batches differ."""
import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WORDS = 2048
LENGTHS = (32, 48, 64)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Front(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))

    def forward(self, words):
        return self.layers(self.word(words))


class Back(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.out = nn.Linear(width, WORDS)

    def forward(self, x, wanted):
        return F.cross_entropy(self.out(self.layers(x)).flatten(0, 1), wanted.flatten())


def sentences(o, number):
    """Both stages read the same corpus: stage 0 the words, stage 1 their translation."""
    g = torch.Generator().manual_seed(number)
    length = LENGTHS[number % len(LENGTHS)]
    first = torch.randint(0, WORDS, (o.batch, 1), generator=g)
    words = (first + torch.arange(length) * (1 + first % 3)) % WORDS
    return words, (words * 5 + 7) % WORDS


class Pipe:
    def __init__(self, o, device):
        self.o, self.device = o, device
        self.peer = 1 - dist.get_rank()

    def put(self, x):
        header = torch.tensor(x.shape, device=self.device)
        dist.send(header, self.peer)
        dist.send(x.contiguous(), self.peer)

    def take(self):
        header = torch.empty(3, dtype=torch.long, device=self.device)
        dist.recv(header, self.peer)
        x = torch.empty(header.tolist(), device=self.device)
        dist.recv(x, self.peer)
        return x

    def put_grad(self, grad):
        dist.send(grad, self.peer)

    def take_grad(self, like):
        grad = torch.empty_like(like)
        dist.recv(grad, self.peer)
        return grad


def first_stage(pipe, front, words):
    sent = []
    for micro in words.chunk(pipe.o.micro):
        x = front(micro.to(pipe.device))
        pipe.put(x.detach())
        sent.append(x)
    for x in sent:
        x.backward(pipe.take_grad(x))


def last_stage(pipe, back, wanted):
    losses, inputs = [], []
    for micro in wanted.chunk(pipe.o.micro):
        x = pipe.take().requires_grad_()
        inputs.append(x)
        losses.append(back(x, micro.to(pipe.device)) / pipe.o.micro)
    for x, loss in zip(inputs, losses):
        loss.backward()
        pipe.put_grad(x.grad)
    return torch.stack(losses).sum().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--micro", type=int, default=4)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("--save", type=int, default=100)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    torch.manual_seed(20 + rank)
    part = (Front if rank == 0 else Back)(o.width, o.depth).to(device)
    optimizer = torch.optim.AdamW(part.parameters(), lr=3e-4)
    pipe, began = Pipe(o, device), time.time()
    dist.barrier()
    print(f"stage {rank} ready, {sum(w.numel() for w in part.parameters()) / 1e6:.2f} M parameters", flush=True)
    for step in range(1, o.steps + 1):
        words, wanted = sentences(o, step)
        if rank == 0:
            first_stage(pipe, part, words)
        else:
            loss = last_stage(pipe, part, wanted)
        nn.utils.clip_grad_norm_(part.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 1 and (step <= 3 or step % o.show == 0):
            print(f"batch {step} loss {loss:.4f} elapsed {time.time() - began:.1f}", flush=True)
        if step % o.save == 0:
            torch.save(part.state_dict(), f"stage{rank}.pt")
            dist.barrier()
    dist.barrier()
    print(f"stage {rank} is through", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
