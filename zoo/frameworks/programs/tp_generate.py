import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SPECIAL = 16


class ColumnLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out // dist.get_world_size(), n_in) * n_in**-0.5)

    def forward(self, x):
        return F.linear(x, self.weight)


class RowLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in // dist.get_world_size()) * n_in**-0.5)

    def forward(self, x):
        y = F.linear(x, self.weight)
        dist.all_reduce(y)
        return y


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads // dist.get_world_size()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (ColumnLinear(width, width) for _ in range(3))
        self.o, self.up, self.down = RowLinear(width, width), ColumnLinear(width, 4 * width), RowLinear(4 * width, width)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, vocab=512, width=512, layers=4, heads=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x[:, -1]), self.embed.weight) * 0.004


class Sampler:
    def __init__(self, device, temperature, top_k, seed):
        self.temperature, self.top_k = temperature, top_k
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(seed)

    def __call__(self, logits):
        logits = logits / self.temperature
        kth = logits.topk(self.top_k).values[:, -1:]
        probs = logits.masked_fill(logits < kth, float("-inf")).softmax(-1)
        return torch.multinomial(probs, 1, generator=self.generator)


@torch.inference_mode()
def generate(model, prompt, sampler, max_new_tokens):
    ids = prompt
    for _ in range(max_new_tokens):
        token = sampler(model(ids))
        ids = torch.cat([ids, token], dim=1)
        if (token < SPECIAL).all():
            break
    return ids


def read_requests(n):
    g = torch.Generator().manual_seed(99)
    for i in range(n):
        length = int(torch.randint(8, 40, (1,), generator=g))
        yield {"id": i, "prompt": torch.randint(4, 512, (1, length), generator=g), "max_new_tokens": 64}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--timeout", type=int, default=1800)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    torch.manual_seed(0)
    model = Model().to(device).eval()
    for p in model.embed.parameters():
        dist.broadcast(p.data, 0)
    sampler = Sampler(device, args.temperature, 50, seed=1234)
    for request in read_requests(args.requests):
        prompt = request["prompt"].to(device)
        out = generate(model, prompt, sampler, request["max_new_tokens"])
        if rank == 0:
            print(f"request {request['id']}: prompt {prompt.shape[1]} tokens, generated {out.shape[1] - prompt.shape[1]}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
