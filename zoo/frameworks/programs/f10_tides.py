"""Tide gauges: forecasts with a transformer cut into two stages, GPipe schedule with torch.distributed send and recv (no library).

Rank 0 has the data and the first layers, rank 1 the other layers and the loss. torchrun --nproc-per-node 2 pipeline.py
"""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn

STATIONS, BINS = 64, 256


def tide(batch, length, generator):
    """Heights as tokens: a few harmonics and weather."""
    t = torch.arange(length + 1) + torch.rand(batch, 1, generator=generator) * 1000
    h = sum(torch.rand(batch, 1, generator=generator) * torch.sin(6.2832 * t / period) for period in (12.42, 12.0, 23.93, 25.82))
    h = h + 0.05 * torch.randn(h.shape, generator=generator)
    return ((h + 4) / 8 * BINS).long().clamp(0, BINS - 1)


class Stage(nn.Module):
    def __init__(self, first, last, dim, depth, length):
        super().__init__()
        self.embed = nn.Embedding(BINS, dim) if first else None
        self.place = nn.Parameter(0.02 * torch.randn(length, dim)) if first else None
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(dim, 16, 4 * dim, 0.0, batch_first=True, norm_first=True) for _ in range(depth))
        self.leave = nn.Linear(dim, BINS) if last else None
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x) + self.place[: x.shape[1]]
        for block in self.blocks:
            x = block(x, src_mask=self.mask[: x.shape[1], : x.shape[1]], is_causal=True)
        return x if self.leave is None else self.leave(x)


class Pipe:
    def __init__(self, args, rank, device):
        self.args, self.rank, self.device = args, rank, device
        self.stage = Stage(rank == 0, rank == 1, args.dim, args.depth, args.length).to(device)
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), args.lr)
        self.generator = torch.Generator().manual_seed(21)

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16)

    def batch(self):
        """Both ranks draw the same heights; rank 0 needs the inputs, rank 1 the targets."""
        tokens = tide(self.args.batch, self.args.length, self.generator)
        return (tokens[:, :-1] if self.rank == 0 else tokens[:, 1:]).to(self.device).chunk(self.args.micro)

    def receive(self, count):
        x = torch.empty(count, self.args.length, self.args.dim, device=self.device, dtype=torch.bfloat16)
        dist.recv(x, 1 - self.rank)
        return x

    def loss(self, logits, target):
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())

    def step(self):
        parts, sent, total = self.batch(), [], 0.0
        if self.rank == 0:
            for tokens in parts:
                with self.autocast():
                    out = self.stage(tokens).bfloat16()
                dist.send(out.detach().contiguous(), 1)
                sent.append(out)
            for out in sent:
                out.backward(self.receive(len(out)))
        else:
            for target in parts:
                x = self.receive(len(target)).requires_grad_()
                with self.autocast():
                    logits = self.stage(x)
                loss = self.loss(logits, target) / len(parts)
                loss.backward()
                sent.append(x.grad)
                total = total + loss.detach()
            for grad in sent:
                dist.send(grad.contiguous(), 0)
        nn.utils.clip_grad_norm_(self.stage.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    @torch.no_grad()
    def evaluate(self):
        """Loss on heights that are not trained on, forward only."""
        g, total = torch.Generator().manual_seed(5), 0.0
        for _ in range(8):
            tokens = tide(self.args.batch // self.args.micro, self.args.length, g).to(self.device)
            with self.autocast():
                if self.rank == 0:
                    dist.send(self.stage(tokens[:, :-1]).bfloat16().contiguous(), 1)
                else:
                    total += self.loss(self.stage(self.receive(len(tokens))), tokens[:, 1:]) / 8
        return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=6, help="layers of a stage")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--minutes", type=float, default=1.2)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--timeout", type=int, default=600)
    args = parser.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    torch.manual_seed(rank)
    pipe = Pipe(args, rank, device)
    print(f"stage {rank}: {sum(p.numel() for p in pipe.stage.parameters()) / 1e6:.1f}M parameters on {device}", flush=True)
    start, step = time.time(), 0
    while True:
        step += 1
        began = time.time()
        loss = pipe.step()
        if step % 10 == 0 and rank == 1:
            print(f"step {step:5d}  loss {loss.item():.4f}  {(time.time() - began) * 1000:.0f} ms  {time.time() - start:.1f} s", flush=True)
        if step % args.eval_every == 0:
            value = pipe.evaluate()
            if rank == 1:
                print(f"step {step:5d}  validation {value.item():.4f}", flush=True)
            torch.save(pipe.stage.state_dict(), f"stage{rank}.pt")
            if rank == 0:
                over = time.time() - start > 60 * args.minutes
                dist.send(torch.tensor([float(over)], device=device), 1)
            else:
                flag = torch.empty(1, device=device)
                dist.recv(flag, 0)
                over = flag.item() > 0
            if over:
                break
    print(f"stage {rank}: {step} steps, {time.time() - start:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
