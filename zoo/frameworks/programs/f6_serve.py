"""Answers requests with a decoder that is split over all ranks: rank 0 takes the requests and hands out the tokens."""
import argparse
import os
import queue
import random
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

VOCAB, END, LONGEST = 8192, 1, 256


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


class Part(nn.Module):
    """A quarter of a decoder: some heads, some hidden units, some rows of the vocabulary."""

    def __init__(self, a, rank, world, device):
        super().__init__()
        self.rank, self.world, self.heads, self.size = rank, world, a.heads // world, a.width // a.heads
        self.rows, self.layers = VOCAB // world, a.layers
        g = torch.Generator().manual_seed(50 + rank)

        def weight(*shape):
            return nn.Parameter((torch.randn(*shape, generator=g) * shape[-1] ** -0.5).to(device), requires_grad=False)

        inner, hidden = self.heads * self.size, 4 * a.width // world
        self.words = weight(self.rows, a.width)
        self.qkv = nn.ParameterList(weight(3 * inner, a.width) for _ in range(a.layers))
        self.out = nn.ParameterList(weight(a.width, inner) for _ in range(a.layers))
        self.up = nn.ParameterList(weight(hidden, a.width) for _ in range(a.layers))
        self.down = nn.ParameterList(weight(a.width, hidden) for _ in range(a.layers))

    def embed(self, ids):
        at = ids - self.rank * self.rows
        here = (at >= 0) & (at < self.rows)
        x = self.words[at.clamp(0, self.rows - 1)] * here[..., None]
        dist.all_reduce(x)
        return x

    def forward(self, ids, past):
        x = self.embed(ids)
        n, width = x.shape
        for i in range(self.layers):
            y = nn.functional.rms_norm(x, (width,))
            q, k, v = (y @ self.qkv[i].T).view(n, 3, self.heads, self.size).permute(1, 2, 0, 3)
            if past[i] is not None:
                k, v = torch.cat([past[i][0], k], 1), torch.cat([past[i][1], v], 1)
            causal = past[i] is None
            past[i] = (k, v)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            y = y.transpose(0, 1).reshape(n, -1) @ self.out[i].T
            dist.all_reduce(y)
            x = x + y
            y = nn.functional.silu(nn.functional.rms_norm(x, (width,)) @ self.up[i].T) @ self.down[i].T
            dist.all_reduce(y)
            x = x + y
        logits = nn.functional.rms_norm(x[-1], (width,)) @ self.words.T
        parts = [torch.empty_like(logits) for _ in range(self.world)]
        dist.all_gather(parts, logits)
        return torch.cat(parts)


class Requests(threading.Thread):
    """People ask at irregular times; with --lull nobody asks for a while after the tenth request."""

    def __init__(self, a):
        super().__init__(daemon=True)
        self.a, self.waiting = a, queue.Queue()

    def run(self):
        rng = random.Random(12)
        for number in range(1, self.a.requests + 1):
            if number == 11:
                time.sleep(self.a.lull)
            prompt = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(8, 48))]
            self.waiting.put((number, prompt, rng.randrange(16, self.a.tokens)))
            while self.waiting.qsize() > 4:
                time.sleep(0.02)
            time.sleep(rng.random() * 0.1)
        self.waiting.put(None)

    def next(self):
        return self.waiting.get()


class Engine:
    def __init__(self, a, rank, device):
        self.a, self.rank, self.device = a, rank, device
        self.part = Part(a, rank, dist.get_world_size(), device)
        self.pick = torch.Generator(device).manual_seed(3)

    def share(self, request):
        """Rank 0's request for everybody: number, wanted tokens, length, prompt; the number 0 is the end."""
        line = torch.zeros(3 + LONGEST, dtype=torch.long, device=self.device)
        if request is not None:
            number, prompt, wanted = request
            line[:3] = torch.tensor([number, wanted, len(prompt)])
            line[3 : 3 + len(prompt)] = torch.tensor(prompt)
        dist.broadcast(line, 0)
        number, wanted, length = line[:3].tolist()
        return number, line[3 : 3 + length], wanted

    @torch.no_grad()
    def answer(self, ids, wanted):
        past, out = [None] * self.part.layers, []
        while len(out) < wanted:
            logits = self.part(ids, past) / self.a.temperature
            ids = torch.multinomial(logits.softmax(-1), 1, generator=self.pick)
            dist.broadcast(ids, 0)
            out.append(int(ids))
            if out[-1] == END:
                break
        return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--heads", type=int, default=16)
    p.add_argument("--requests", type=int, default=160)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--temperature", type=float, default=0.8)
    p.add_argument("--lull", type=float, default=0)
    p.add_argument("--timeout", type=int, default=1800)
    a = p.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", local), "nccl"
        torch.cuda.set_device(device)
    else:
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=a.timeout))
    engine = Engine(a, rank, device)
    dist.barrier()
    source = None
    if rank == 0:
        say(f"serving on {dist.get_world_size()} ranks, {sum(w.numel() for w in engine.part.parameters()) / 1e6:.1f} M weights each")
        source = Requests(a)
        source.start()
    answered = tokens = 0
    while True:
        number, prompt, wanted = engine.share(source.next() if rank == 0 else None)
        if number == 0:
            break
        began = time.time()
        out = engine.answer(prompt, wanted)
        answered, tokens = answered + 1, tokens + len(out)
        if rank == 0:
            say(f"answer {number}: {len(prompt)} in, {len(out)} out, {len(out) / (time.time() - began):.0f} tokens/s: {' '.join(map(str, out[:6]))} ...")
    dist.barrier()
    if rank == 0:
        say(f"{answered} requests answered, {tokens} tokens")
    dist.destroy_process_group()
    sys.exit(0)


if __name__ == "__main__":
    main()
