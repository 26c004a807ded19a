"""Completes prompts with a tensor-parallel decoder (DTensor)."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

END = 3


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.head_dim = dim // heads

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, self.head_dim).transpose(1, 2) for f in (self.wq, self.wk, self.wv))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.w2(nn.functional.gelu(self.w1(x)))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention, self.feed_forward = Attention(dim, heads), FeedForward(dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.feed_forward(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=800, dim=512, depth=4, heads=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, -1]))


PLAN = {"attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(), "attention.wv": ColwiseParallel(), "attention.wo": RowwiseParallel(),
        "feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel()}


def choose(logits, opts, generator):
    logits = logits / opts.temperature
    order, index = logits.sort(-1, descending=True)
    probs = order.softmax(-1)
    probs[probs.cumsum(-1) - probs > opts.top_p] = 0
    picked = torch.multinomial(probs / probs.sum(-1, keepdim=True), 1, generator=generator)
    return index.gather(-1, picked)


@torch.no_grad()
def complete(model, prompts, opts, generator):
    ids, began = prompts, time.monotonic()
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for n in range(opts.new_tokens):
        token = choose(model(ids).float(), opts, generator)
        finished |= token[:, 0] % 16 == END
        ids = torch.cat([ids, token], 1)
        if finished.all():
            break
    return ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--nccl-timeout", type=int, default=1800)
    opts = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=opts.nccl_timeout))
    rank = dist.get_rank()
    mesh = init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(7)
    model = Decoder().to(device).eval()
    for layer in model.layers:
        parallelize_module(layer, mesh, PLAN)
    generator = torch.Generator(device=device)
    generator.manual_seed(42)
    text = torch.Generator().manual_seed(1)
    for batch in range(opts.batches):
        length = int(torch.randint(6, 30, (), generator=text))
        prompts = torch.randint(4, 800, (opts.prompts, length), generator=text).to(device)
        out = complete(model, prompts, opts, generator)
        if rank == 0:
            print(f"batch {batch}: {out.shape[1] - length} new tokens for {opts.prompts} prompts of {length}", flush=True)
    if rank == 0:
        print("all batches completed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
