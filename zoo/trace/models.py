"""Models of the planted jobs: small enough for a short timeline, large enough that steps consist of real work."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def transformer(width=2048, layers=6):
    return nn.Sequential(*[Block(width, width // 128 or 1) for _ in range(layers)])


def mlp(width=6144, layers=8):
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


def thin(width=256, layers=60):
    """Many small layers: launches take longer than the work."""
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()]
    return nn.Sequential(*parts)


class Experts(nn.Module):
    """A layer of experts, one per rank; a `share` of all tokens goes to the last rank."""

    def __init__(self, width, world, rank, share):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.world, self.rank, self.share = world, rank, share

    def splits(self, n_tokens):
        last = int(n_tokens * self.share)
        others = (n_tokens - last) // (self.world - 1)
        sizes = [others] * (self.world - 1)
        return sizes + [n_tokens - sum(sizes)]

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        send = self.splits(len(tokens))
        receive = [send[self.rank]] * self.world
        routed = Exchange.apply(tokens, send, receive)
        return Exchange.apply(self.inner(routed), receive, send).view_as(x)


class Exchange(torch.autograd.Function):
    """all_to_all with its gradient."""

    @staticmethod
    def forward(ctx, x, send, receive):
        ctx.splits = send, receive
        out = x.new_empty(sum(receive), x.shape[1])
        torch.distributed.all_to_all_single(out, x.contiguous(), receive, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        send, receive = ctx.splits
        out = grad.new_empty(sum(send), grad.shape[1])
        torch.distributed.all_to_all_single(out, grad.contiguous(), send, receive)
        return out, None, None
