"""A mixture of experts, one expert group per GPU, tokens exchanged with all-to-all."""
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, recv, group):
        ctx.send, ctx.recv, ctx.group = send, recv, group
        out = x.new_empty((sum(recv), x.shape[1]))
        dist.all_to_all_single(out, x.contiguous(), recv, send, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty((sum(ctx.send), grad.shape[1]))
        dist.all_to_all_single(out, grad.contiguous(), ctx.send, ctx.recv, group=ctx.group)
        return out, None, None, None


class ExpertLayer(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.group, self.world = group, dist.get_world_size(group)
        self.gate = nn.Linear(width, self.world)
        self.expert = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        weight, choice = self.gate(x).softmax(-1).max(-1)
        order = choice.argsort(stable=True)
        counts = torch.bincount(choice, minlength=self.world)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts, group=self.group)
        send, recv = counts.tolist(), incoming.tolist()
        there = Exchange.apply(x[order], send, recv, self.group)
        back = Exchange.apply(self.expert(there), recv, send, self.group)
        out = torch.empty_like(back).index_copy(0, order, back)
        return x + weight[:, None] * out


class Router(nn.Module):
    def __init__(self, width, depth, group):
        super().__init__()
        self.inp = nn.Linear(48, width)
        self.layers = nn.ModuleList([ExpertLayer(width, group) for _ in range(depth)])
        self.out = nn.Linear(width, 48)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def sync_shared(model, group):
    for name, p in model.named_parameters():
        if ".expert." not in name:
            dist.all_reduce(p.grad, group=group)
            p.grad /= dist.get_world_size(group)


def tokens(step, rank, count):
    g = torch.Generator().manual_seed(step * 1009 + rank)
    return torch.randn(count, 48, generator=g)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--iters", type=int, default=300)
    cli.add_argument("--tokens", type=int, default=4096)
    cli.add_argument("--comm-timeout-s", type=int, default=1800)
    cli.add_argument("--report", type=int, default=25)
    a = cli.parse_args()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if cuda else "cpu"
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=a.comm_timeout_s))
    rank = dist.get_rank()
    experts = dist.new_group(timeout=timedelta(seconds=a.comm_timeout_s), group_desc="experts")
    torch.manual_seed(4)
    model = Router(512, 3, experts).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for i in range(1, a.iters + 1):
        x = tokens(i, rank, a.tokens).to(device)
        loss = (model(x) - x.sin()).pow(2).mean()
        loss.backward()
        sync_shared(model, dist.group.WORLD)
        optimizer.step()
        optimizer.zero_grad()
        if i % a.report == 0:
            both = torch.stack([loss.detach(), torch.ones((), device=device)])
            dist.reduce(both, dst=0)
            if rank == 0:
                print(f"moe iteration {i}: loss {both[0].item() / both[1].item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        print("moe training ended", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
