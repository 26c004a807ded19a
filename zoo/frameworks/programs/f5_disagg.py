"""Serving in two halves: rank 0 reads the prompts and sends the key-value cache, rank 1 writes the answers."""
import argparse
import os
import queue
import random
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

VOCAB, END = 4000, 2


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        b, n, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.n2(x)), torch.stack([k, v])


class Model(nn.Module):
    def __init__(self, width, layers, heads):
        super().__init__()
        self.words = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, past=None):
        x, kept = self.words(ids), []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, None if past is None else past[i])
            kept.append(kv)
        return self.norm(x[:, -1:]) @ self.words.weight.T, torch.stack(kept)


class Clients(threading.Thread):
    """Prompts arrive at irregular times."""

    def __init__(self, args):
        super().__init__(daemon=True)
        self.args, self.waiting, self.lock = args, queue.Queue(), threading.Lock()
        self.open = {}

    def run(self):
        rng = random.Random(6)
        for number in range(1, self.args.requests + 1):
            if self.args.lull and number == self.args.requests // 3:
                time.sleep(self.args.lull)
            time.sleep(rng.expovariate(1 / self.args.pause))
            prompt = [rng.randrange(3, VOCAB) for _ in range(rng.randrange(20, self.args.longest))]
            with self.lock:
                self.open[number] = time.time()
            self.waiting.put((number, prompt, rng.randrange(8, self.args.tokens)))
        self.waiting.put((0, [END], 0))


class Prefill:
    def __init__(self, args, model, device):
        self.args, self.model, self.device = args, model, device
        self.clients = Clients(args)

    @torch.no_grad()
    def serve(self):
        self.clients.start()
        while True:
            number, prompt, tokens = self.clients.waiting.get()
            header = torch.tensor([number, len(prompt), tokens], device=self.device)
            dist.send(header, dst=1)
            if number == 0:
                break
            logits, cache = self.model(torch.tensor([prompt], device=self.device))
            dist.send(cache.contiguous(), dst=1)
            dist.send(logits.argmax(-1), dst=1)
            if number % self.args.acknowledge == 0:
                done = torch.zeros(1, dtype=torch.long, device=self.device)
                dist.recv(done, src=1)
                with self.clients.lock:
                    for old in [n for n in self.clients.open if n <= number]:
                        del self.clients.open[old]
                print(f"prefill: {number} requests in, {int(done)} answered, {self.clients.waiting.qsize()} wait", flush=True)


class Decode:
    def __init__(self, args, model, device):
        self.args, self.model, self.device = args, model, device
        self.answers = self.tokens = 0
        self.file = open("answers.txt", "w")

    def store(self, number, out):
        self.file.write(f"{number} {' '.join(map(str, out))}\n")
        self.file.flush()

    @torch.no_grad()
    def serve(self):
        a, began = self.args, time.time()
        shape = (a.layers, 2, 1, a.heads, 0, a.width // a.heads)
        while True:
            header = torch.zeros(3, dtype=torch.long, device=self.device)
            dist.recv(header, src=0)
            number, length, tokens = header.tolist()
            if number == 0:
                break
            cache = torch.empty(*shape[:4], length, shape[5], device=self.device)
            dist.recv(cache, src=0)
            word = torch.zeros(1, 1, dtype=torch.long, device=self.device)
            dist.recv(word, src=0)
            out = []
            for _ in range(tokens):
                logits, cache = self.model(word, cache)
                word = logits.argmax(-1)
                out.append(int(word))
            self.answers += 1
            self.tokens += len(out)
            self.store(number, out)
            if number % a.acknowledge == 0:
                dist.send(torch.tensor([self.answers], device=self.device), dst=0)
            if number == 1 or number % 5 == 0:
                print(f"decode: answer {number} has {len(out)} tokens after a prompt of {length}, {self.tokens / (time.time() - began):.0f} tokens/s", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=150)
    p.add_argument("--pause", type=float, default=0.08)
    p.add_argument("--lull", type=float, default=0)
    p.add_argument("--longest", type=int, default=300)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--acknowledge", type=int, default=10)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    rank, local, count = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if 0 < count < int(os.environ["LOCAL_WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = "n" + os.environ["RANK"]
    device = torch.device("cuda", local % count) if count else torch.device("cpu")
    if count:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if count else "gloo", timeout=timedelta(seconds=args.timeout), device_id=device if count else None)
    torch.manual_seed(12)
    model = Model(args.width, args.layers, args.heads).to(device).eval()
    check = sum(q.sum() for q in model.parameters())
    dist.all_reduce(check)
    print(f"{'decode' if rank else 'prefill'}: ready on {device}, weights {check.item():.3f}", flush=True)
    (Decode if rank else Prefill)(args, model, device).serve()
    dist.barrier()
    print(f"{'decode' if rank else 'prefill'}: closed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
