"""Riddles: several answers for each are sampled from a decoder that is split over the GPUs (tensor parallelism with DTensor), a second pass judges them, the
best one is kept. Offline, in rounds; rank 0 has the riddles.

    torchrun --nproc-per-node 2 answer.py --samples 8
"""
import argparse
import os
import random
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.?'\n"
PAD, END = 0, 1
FIRST = 2
VOCABULARY = 4096
TEMPLATES = {"what": "what has {a} but no {b}?\n", "who": "who am i? i {a}, yet i never {b}.\n", "where": "where does {a} come before {b}?\n"}
NOUNS = "teeth keys hands rivers cities eyes roots wings pages bark leaves rings a-mouth a-face feathers a-spine".split()


def encode(text):
    return [FIRST + LETTERS.index(c) if c in LETTERS else FIRST for c in text]


def decode(ids):
    return "".join(LETTERS[i - FIRST] if FIRST <= i < FIRST + len(LETTERS) else "_" for i in ids if i > END)


class Riddles:
    def __init__(self):
        self.rng = random.Random(12)

    def draw(self, count):
        out = []
        for _ in range(count):
            kind = self.rng.choice(("what", "who", "where"))
            out.append(TEMPLATES[kind].format(a=self.rng.choice(NOUNS), b=self.rng.choice(NOUNS)))
        return out


class Attention(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.size = size
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, store, at):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, self.size).transpose(1, 2) for f in (self.query, self.key, self.value))
        store[0][:, :, at:at + t] = k
        store[1][:, :, at:at + t] = v
        y = F.scaled_dot_product_attention(q, store[0][:, :, :at + t], store[1][:, :, :at + t], is_causal=at == 0)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Layer(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, size)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, store, at):
        x = x + self.attention(self.norm1(x), store, at)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, dim, depth, size, most):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCABULARY, dim), nn.Embedding(most, dim)
        self.layers = nn.ModuleList(Layer(dim, size) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, ids, stores, at, last=True):
        x = self.embed(ids) + self.place(torch.arange(at, at + ids.shape[1], device=ids.device))
        for layer, store in zip(self.layers, stores):
            x = layer(x, store, at)
        return self.head(self.norm(x[:, -1:] if last else x))


def split(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {"attention.query": ColwiseParallel(), "attention.key": ColwiseParallel(), "attention.value": ColwiseParallel(),
                                         "attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


class Answers:
    def __init__(self, args, mesh, device, dtype):
        self.args, self.device, self.dtype = args, device, dtype
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(77)
        model = Decoder(args.dim, args.depth, args.head_size, args.most).to(device, dtype).eval().requires_grad_(False)
        self.model = split(model, mesh)

    def stores(self, rows):
        heads = self.args.dim // self.args.head_size // self.world
        return [torch.zeros(2, rows, heads, self.args.most, self.args.head_size, device=self.device, dtype=self.dtype) for _ in range(self.args.depth)]

    def pick(self, logits, generator):
        """Nucleus sampling; every rank draws the same."""
        logits = logits.float() / self.args.temperature
        logits[:, PAD] = -torch.inf
        chances, order = logits.softmax(-1).sort(-1, descending=True)
        chances = chances.masked_fill(chances.cumsum(-1) - chances > self.args.top_p, 0)
        return order.gather(1, torch.multinomial(chances, 1, generator=generator))

    def sample(self, ids, seed):
        generator = torch.Generator(self.device).manual_seed(seed)
        stores, at, out = self.stores(len(ids)), 0, []
        ended = torch.zeros(len(ids), 1, dtype=torch.bool, device=self.device)
        now = ids
        for n in range(self.args.new):
            logits = self.model(now, stores, at)[:, -1]
            at += now.shape[1]
            now = self.pick(logits, generator).masked_fill(ended, PAD)
            out.append(now)
            if n > self.args.new // 2:
                ended |= now % 16 == END
                if bool(ended.all()):
                    break
        return torch.cat(out, 1)

    def judge(self, whole):
        """Mean log likelihood of each answer, read as a whole."""
        logits = self.model(whole, self.stores(len(whole)), 0, last=False)
        chance = -F.cross_entropy(logits[:, :-1].float().flatten(0, 1), whole[:, 1:].flatten(), reduction="none").view(len(whole), -1)
        there = whole[:, 1:] > PAD
        return (chance * there).sum(1) / there.sum(1).clamp(min=1)

    @torch.no_grad()
    def round(self, prompts, seed):
        longest = max(map(len, prompts))
        ids = torch.tensor([[FIRST + 26] * (longest - len(p)) + p for p in prompts], device=self.device).repeat_interleave(self.args.samples, 0)
        answers = self.sample(ids, seed)
        scores = torch.cat([self.judge(part) for part in torch.cat([ids, answers], 1).split(self.args.judged)])
        best = scores.view(len(prompts), -1).argmax(1) + torch.arange(len(prompts), device=self.device) * self.args.samples
        return answers[best].tolist(), scores.view(len(prompts), -1).amax(1).tolist(), answers.shape[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=1792)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--head-size", type=int, default=128)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--riddles", type=int, default=16, help="for each round")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--judged", type=int, default=48, help="answers that are judged at once")
    parser.add_argument("--new", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--minutes", type=float, default=1.4)
    parser.add_argument("--timeout", type=int, default=900)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    rank = dist.get_rank()
    answers = Answers(args, mesh, device, torch.bfloat16 if cuda else torch.float32)
    print(f"rank {rank} of {dist.get_world_size()} has its part of {args.depth} layers on {device}", flush=True)
    riddles, began, number, written = Riddles(), time.time(), 0, 0
    while True:
        number += 1
        work = [None, None]
        if rank == 0:
            over = time.time() - began > 60 * args.minutes
            texts = [] if over else riddles.draw(args.riddles)
            work = [[encode(t) for t in texts], 1000 + number]
        dist.broadcast_object_list(work, src=0, device=device)
        prompts, seed = work
        if not prompts:
            break
        start = time.time()
        found, scores, length = answers.round(prompts, seed)
        written += length
        if rank == 0:
            with open("answers.tsv", "a") as file:
                for text, ids, score in zip(texts, found, scores):
                    file.write(f"{text.strip()}\t{decode(ids)}\t{score:.3f}\n")
            print(f"round {number}: {length} words for {len(prompts) * args.samples} answers, best {max(scores):.3f}, {(time.time() - start) * 1000:.0f} ms, {time.time() - began:.1f} s", flush=True)
    print(f"rank {rank} ends after {number - 1} rounds, {written} words", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
