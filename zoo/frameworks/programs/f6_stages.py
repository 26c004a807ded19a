"""Four pipeline stages with a hand-written 1F1B schedule; the first and the last stage share the word vectors."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

WORDS = 6000


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.GRU(width, width, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.mix(self.norm(x))[0]
        return x + self.out(x)


class Stage(nn.Module):
    """One part of the model. Only the ends hold the word vectors."""

    def __init__(self, args, index, count):
        super().__init__()
        self.first, self.last = index == 0, index == count - 1
        self.blocks = nn.ModuleList(Block(args.width) for _ in range(args.blocks))
        if self.first or self.last:
            self.words = nn.Embedding(WORDS, args.width)
            nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x):
        if self.first:
            x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return x @ self.words.weight.T if self.last else x


class Wire:
    """Activations go down to the next stage, gradients go back up."""

    def __init__(self, rank, world, shape, device):
        self.up = rank - 1 if rank > 0 else None
        self.down = rank + 1 if rank + 1 < world else None
        self.shape, self.device = shape, device

    def swap(self, to=None, tensor=None, source=None):
        """Sends the tensor, receives one, or both at once."""
        ops, got = [], None
        if to is not None:
            ops.append(dist.P2POp(dist.isend, tensor.contiguous(), to))
        if source is not None:
            got = torch.empty(self.shape, device=self.device)
            ops.append(dist.P2POp(dist.irecv, got, source))
        for work in dist.batch_isend_irecv(ops) if ops else ():
            work.wait()
        return got


class Sentences:
    def __init__(self, args):
        self.args = args

    def micro(self, step, number):
        g = torch.Generator().manual_seed(step * 1000 + number)
        ids = torch.randint(10, 90, (self.args.micro, 1), generator=g) * torch.arange(1, self.args.length + 2) % 997
        return ids[:, :-1], ids[:, 1:]


class Pipeline:
    def __init__(self, args, stage, rank, world, device):
        self.args, self.stage, self.rank, self.world, self.device = args, stage, rank, world, device
        self.wire = Wire(rank, world, (args.micro, args.length, args.width), device)
        self.data = Sentences(args)

    def forward(self, step, number, x, losses):
        stage = self.stage
        ids, following = self.data.micro(step, number) if stage.first or stage.last else (None, None)
        inside = ids.to(self.device) if stage.first else x.requires_grad_()
        y = stage(inside)
        if stage.last:
            y = nn.functional.cross_entropy(y.flatten(0, 1), following.flatten().to(self.device)) / self.args.micros
            losses.append(y.detach())
        return inside, y

    def backward(self, pending, grad):
        inside, y = pending.pop(0)
        y.backward(grad)
        return None if self.stage.first else inside.grad

    def step(self, number):
        a, wire, pending, losses = self.args, self.wire, [], []
        warm = min(self.world - 1 - self.rank, a.micros)
        for i in range(warm):
            x = wire.swap(source=wire.up)
            pending.append(self.forward(number, i, x, losses))
            wire.swap(to=wire.down, tensor=pending[-1][1].detach())
        x = wire.swap(source=wire.up) if warm < a.micros else None
        for i in range(warm, a.micros):
            pending.append(self.forward(number, i, x, losses))
            out = None if self.stage.last else pending[-1][1].detach()
            grad = wire.swap(to=wire.down, tensor=out, source=wire.down)
            back = self.backward(pending, grad)
            x = wire.swap(to=wire.up, tensor=back, source=wire.up if i + 1 < a.micros else None)
        while pending:
            back = self.backward(pending, wire.swap(source=wire.down))
            wire.swap(to=wire.up, tensor=back)
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.device)


def clip(params, most=1.0):
    total = sum((p.grad**2).sum() for p in params)
    dist.all_reduce(total)
    for p in params:
        p.grad.mul_(torch.clamp(most / (total.sqrt() + 1e-6), max=1.0))
    return total.sqrt()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--blocks", type=int, default=2)
    p.add_argument("--length", type=int, default=48)
    p.add_argument("--micro", type=int, default=16)
    p.add_argument("--micros", type=int, default=8)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--report", type=int, default=5)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{local}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    wait = timedelta(seconds=args.timeout)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=wait)
    ends = dist.new_group([0, world - 1], timeout=wait)
    dist.barrier()
    torch.manual_seed(100 + rank)
    stage = Stage(args, rank, world).to(device)
    params = list(stage.parameters())
    if stage.first or stage.last:
        dist.broadcast(stage.words.weight.data, 0, group=ends)
    opt = torch.optim.Adam(params, lr=1e-3)
    pipe = Pipeline(args, stage, rank, world, device)
    print(f"stage {rank}: {sum(q.numel() for q in params) / 1e6:.2f} M parameters on {device}", flush=True)
    began = time.time()
    for step in range(1, args.steps + 1):
        loss = pipe.step(step)
        if stage.first or stage.last:
            dist.all_reduce(stage.words.weight.grad, group=ends)
        norm = clip(params)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step == 1 or step % args.report == 0:
            dist.broadcast(loss, world - 1)
            if rank == 0:
                print(f"iteration {step}: loss {loss.item():.4f} grad norm {norm.item():.3f} {time.time() - began:.1f} s", flush=True)
    torch.save(stage.state_dict(), f"stage{rank}.pt")
    dist.barrier()
    print(f"stage {rank} finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
