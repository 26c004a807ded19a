"""A long-sequence model of genomes: each rank has a part of every sequence, attention swaps sequence for heads by all-to-all."""
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ENV = {"STEPS": 160, "LENGTH": 4096, "BATCH": 2, "WIDTH": 512, "DEPTH": 6, "HEADS": 8, "LOG": 10, "VALID": 50, "SAVE": 80, "TIMEOUT": 1800}
C = {name: int(os.environ.get(name, default)) for name, default in ENV.items()}


def log(text):
    print(f"{time.strftime('%d/%b %H:%M:%S')} r{RANK} {text}", flush=True)


class Swap(torch.autograd.Function):
    """(batch, part of the sequence, heads, d) to (batch, sequence, part of the heads, d), or back."""

    @staticmethod
    def forward(ctx, x, to_heads):
        ctx.to_heads = to_heads
        return Swap.exchange(x, to_heads)

    @staticmethod
    def backward(ctx, g):
        return Swap.exchange(g, not ctx.to_heads), None

    @staticmethod
    def exchange(x, to_heads):
        cut, join = (2, 1) if to_heads else (1, 2)
        send = torch.stack([p.contiguous() for p in x.chunk(WORLD, cut)])
        got = torch.empty_like(send)
        dist.all_to_all_single(got, send)
        return torch.cat(list(got), join)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (Swap.apply(t, True).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(Swap.apply(y.contiguous(), False).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.n2(x))))


class Genome(nn.Module):
    def __init__(self):
        super().__init__()
        self.bases = nn.Embedding(8, C["WIDTH"])
        self.motif = nn.Conv1d(C["WIDTH"], C["WIDTH"], 9, padding=4, groups=C["WIDTH"])
        self.layers = nn.ModuleList(Layer(C["WIDTH"], C["HEADS"]) for _ in range(C["DEPTH"]))
        self.head = nn.Linear(C["WIDTH"], 8)

    def forward(self, ids):
        x = self.bases(ids)
        x = x + self.motif(x.transpose(1, 2)).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def sequences(step, length):
    """All ranks make the same sequences and take their own part."""
    g = torch.Generator().manual_seed(step)
    ids = torch.randint(0, 4, (C["BATCH"], length + 1), generator=g)
    ids[:, 3::4] = ids[:, 0:-3:4][:, :ids[:, 3::4].shape[1]]
    part = length // WORLD
    mine = slice(RANK * part, (RANK + 1) * part)
    return ids[:, :-1][:, mine].contiguous(), ids[:, 1:][:, mine].contiguous()


def sync_gradients(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    vector = torch._utils._flatten_dense_tensors(grads)
    dist.all_reduce(vector)
    for g, new in zip(grads, torch._utils._unflatten_dense_tensors(vector / WORLD, grads)):
        g.copy_(new)


def objective(model, step, device):
    ids, target = (t.to(device) for t in sequences(step, C["LENGTH"]))
    with torch.autocast(device.type, torch.bfloat16):
        logits = model(ids)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())


@torch.no_grad()
def validate(model, device):
    total = sum(objective(model, 10**6 + k, device) for k in range(4)) / 4
    dist.all_reduce(total)
    return total.item() / WORLD


def main():
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", RANK) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    log(f"pid {os.getpid()} joins {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=C["TIMEOUT"]))
    torch.manual_seed(0)
    model = Genome().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(1, C["STEPS"] + 1):
        loss = objective(model, step, device)
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(model)
        optimizer.step()
        if step % C["LOG"] == 0 or step <= 3:
            log(f"step {step} loss {loss.item():.4f}")
        if step % C["VALID"] == 0:
            value = validate(model, device)
            if RANK == 0:
                log(f"step {step} valid {value:.4f}")
        if step % C["SAVE"] == 0:
            if RANK == 0:
                torch.save({"model": model.state_dict(), "step": step}, f"genome-{step}.pt")
            dist.barrier()
    log("bye")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
