"""Subtitles for films: rank 0 listens (encoder over the sound), rank 1 writes (decoder over letters). The two halves are a pipeline: parts of a batch are in
flight at the same time, activations and gradients cross in one batch_isend_irecv.

    torchrun --nproc-per-node 2 subtitle.py
"""
import argparse
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

LETTERS = 64
START = 0
FRAME = 80


class Films:
    """Sound and letters of a batch come from its number: both ranks can make their half alone."""

    def __init__(self, args):
        self.args = args
        table = np.random.default_rng(6)
        self.tones = table.uniform(0.02, 0.45, LETTERS).astype(np.float32)
        self.hiss = table.standard_normal((64, args.frames * FRAME), dtype=np.float32) * np.float32(0.5)

    def letters(self, number):
        return np.random.default_rng([1, number]).integers(1, LETTERS, (self.args.batch, self.args.letters))

    def sound(self, number):
        letters = self.letters(number)
        each = self.args.frames * FRAME // self.args.letters
        t = np.arange(each, dtype=np.float32)
        waves = np.sin(self.tones[:, None] * t * np.float32(6.2832))
        sound = waves[letters].reshape(self.args.batch, -1)
        rows = np.random.default_rng([2, number]).integers(0, 64, self.args.batch)
        return sound + self.hiss[rows, :sound.shape[1]]


class Listener(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(1, a.dim // 2, 2 * FRAME, FRAME, FRAME // 2), nn.GELU(), nn.Conv1d(a.dim // 2, a.dim, 3, 2, 1), nn.GELU())
        self.place = nn.Parameter(0.02 * torch.randn(a.frames // 2 + 8, a.dim))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(a.dim, a.heads, 4 * a.dim, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(a.listen))
        self.norm = nn.LayerNorm(a.dim)

    def forward(self, sound):
        x = self.front(sound[:, None]).transpose(1, 2)
        x = x + self.place[:x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Writer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, a.dim)
        self.place = nn.Parameter(0.02 * torch.randn(a.letters, a.dim))
        self.layers = nn.ModuleList(nn.TransformerDecoderLayer(a.dim, a.heads, 4 * a.dim, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(a.write))
        self.leave = nn.Linear(a.dim, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(a.letters), persistent=False)

    def forward(self, heard, before):
        t = before.shape[1]
        x = self.embed(before) + self.place[:t]
        for layer in self.layers:
            x = layer(x, heard, tgt_mask=self.mask[:t, :t], tgt_is_causal=True)
        return self.leave(x)


class Half:
    """One half of the pipeline."""

    def __init__(self, args, rank, device):
        self.args, self.rank, self.device, self.peer = args, rank, device, 1 - rank
        self.films, self.number = Films(args), 0
        torch.manual_seed(60 + rank)
        self.net = (Listener if rank == 0 else Writer)(args).to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), args.lr, weight_decay=0.01)
        self.part = args.batch // args.parts
        self.steps = args.frames // 2

    def empty(self):
        return torch.empty(self.part, self.steps, self.args.dim, device=self.device, dtype=torch.bfloat16)

    def cross(self, out=None, into=None):
        """Sends one tensor and receives another, in one group."""
        calls = []
        if out is not None:
            calls.append(dist.P2POp(dist.isend, out, self.peer))
        if into is not None:
            calls.append(dist.P2POp(dist.irecv, into, self.peer))
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        return into

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16)

    def finish(self):
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Listening(Half):
    def hear(self, sound):
        with self.autocast():
            return self.net(sound).to(torch.bfloat16)

    def step(self):
        self.number += 1
        sound = torch.from_numpy(self.films.sound(self.number)).to(self.device)
        sent = []
        for number, part in enumerate(sound.split(self.part)):
            heard = self.hear(part)
            gradient = self.cross(heard.detach(), self.empty() if number else None)
            if gradient is not None:
                sent.pop(0).backward(gradient)
            sent.append(heard)
        sent.pop(0).backward(self.cross(None, self.empty()))
        self.finish()

    @torch.no_grad()
    def test(self, numbers):
        for number in numbers:
            sound = torch.from_numpy(self.films.sound(number)).to(self.device)
            for part in sound.split(self.part):
                self.cross(self.hear(part))


class Writing(Half):
    def loss(self, heard, letters):
        before = F.pad(letters[:, :-1], (1, 0), value=START)
        with self.autocast():
            guess = self.net(heard, before)
        return F.cross_entropy(guess.float().flatten(0, 1), letters.flatten())

    def parts(self, number):
        return torch.from_numpy(self.films.letters(number)).to(self.device).split(self.part)

    def step(self):
        self.number += 1
        total, gradient = 0.0, None
        parts = self.parts(self.number)
        for letters in parts:
            heard = self.cross(gradient, self.empty()).requires_grad_()
            loss = self.loss(heard, letters) / len(parts)
            loss.backward()
            gradient = heard.grad.contiguous()
            total = total + loss.detach()
        self.cross(gradient)
        self.finish()
        return total

    @torch.no_grad()
    def test(self, numbers):
        losses = []
        for number in numbers:
            for letters in self.parts(number):
                losses.append(self.loss(self.cross(None, self.empty()), letters))
        return torch.stack(losses).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=640)
    p.add_argument("--heads", type=int, default=10)
    p.add_argument("--listen", type=int, default=8, help="layers of the listener")
    p.add_argument("--write", type=int, default=6, help="layers of the writer")
    p.add_argument("--frames", type=int, default=512)
    p.add_argument("--letters", type=int, default=128)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--parts", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--show", type=int, default=10)
    p.add_argument("--test-every", type=int, default=200)
    p.add_argument("--save-every", type=int, default=300)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--timeout", type=int, default=900)
    args = p.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    rank = dist.get_rank()
    half = (Listening if rank == 0 else Writing)(args, rank, device)
    dist.barrier()
    print(f"rank {rank} {type(half).__name__.lower()}: {sum(w.numel() for w in half.net.parameters()) / 1e6:.1f}M parameters", flush=True)
    began = last = time.time()
    step = 0
    while True:
        step += 1
        loss = half.step()
        if step % args.show == 0 and rank == 1:
            now = time.time()
            print(f"step {step:5d} loss {loss.item():.4f} {(now - last) / args.show * 1000:6.1f} ms/step {now - began:.1f} s", flush=True)
            last = now
        if step % args.test_every == 0:
            value = half.test(range(10 ** 6, 10 ** 6 + 4))
            if rank == 1:
                print(f"step {step:5d} test {value.item():.4f}", flush=True)
        if step % args.save_every == 0:
            torch.save(half.net.state_dict(), f"half-{rank}.pt")
            print(f"rank {rank} saved its half at step {step}", flush=True)
        if step % 20 == 0:
            end = torch.tensor([float(time.time() - began > 60 * args.minutes)], device=device)
            dist.broadcast(end, 1)
            if end.item():
                break
    print(f"rank {rank}: {step} steps in {time.time() - began:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
