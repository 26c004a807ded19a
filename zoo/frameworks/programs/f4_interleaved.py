"""A mixer over spectrograms in four pipeline stages, two on each rank (interleaved 1F1B)."""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

OPTIONS = {"iterations": 160, "micro": 8, "batch": 32, "frames": 128, "width": 512, "blocks": 3, "lr": 5e-4, "print": 10, "save": 80, "timeout": 1800}
for word in sys.argv[1:]:
    name, _, value = word.partition("=")
    OPTIONS[name] = type(OPTIONS[name])(value)


class Mixer(nn.Module):
    def __init__(self, frames, width):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.time = nn.Sequential(nn.Linear(frames, 2 * frames), nn.GELU(), nn.Linear(2 * frames, frames))
        self.band = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.time(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.band(self.n2(x))


class Part(nn.Module):
    def __init__(self, index, count, o):
        super().__init__()
        self.blocks = nn.Sequential(*[Mixer(o["frames"], o["width"]) for _ in range(o["blocks"])])
        self.out = nn.Linear(o["width"], o["width"]) if index == count - 1 else nn.Identity()

    def forward(self, x):
        return self.out(self.blocks(x))


def spectrograms(iteration, o):
    g = torch.Generator().manual_seed(iteration)
    f = torch.rand(o["batch"], 1, o["width"], generator=g)
    clean = torch.sin(f * torch.arange(o["frames"])[None, :, None] / 3)
    return clean + 0.3 * torch.randn(clean.shape, generator=g), clean


class Pipe:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        count = 2 * world
        torch.manual_seed(rank)
        self.parts = [Part(i, count, o).to(device) for i in (rank, rank + world)]
        stages = [PipelineStage(part, i, count, device) for part, i in zip(self.parts, (rank, rank + world))]
        self.schedule = ScheduleInterleaved1F1B(stages, o["micro"], loss_fn=nn.functional.mse_loss)
        self.optimizer = torch.optim.AdamW([p for part in self.parts for p in part.parameters()], lr=o["lr"])

    def train_step(self, noisy, clean):
        self.optimizer.zero_grad()
        losses = []
        if self.rank == 0:
            self.schedule.step(noisy.to(self.device))
        else:
            self.schedule.step(target=clean.to(self.device), losses=losses)
        for part in self.parts:
            nn.utils.clip_grad_norm_(part.parameters(), 1.0)
        self.optimizer.step()
        return torch.stack(losses).mean() if losses else None

    def share_loss(self, loss):
        value = loss.detach().clone() if loss is not None else torch.zeros((), device=self.device)
        dist.broadcast(value, src=self.world - 1)
        return value.item()

    def save(self, iteration):
        for k, part in enumerate(self.parts):
            torch.save(part.state_dict(), f"part{self.rank + k * self.world}-{iteration}.pt")
        dist.barrier()


def main():
    o = OPTIONS
    cuda, local = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o["timeout"]), device_id=device if cuda else None)
    rank, world = dist.get_rank(), dist.get_world_size()
    pipe = Pipe(o, rank, world, device)
    print(f"[rank {rank}] stages {rank} and {rank + world}, {sum(p.numel() for part in pipe.parts for p in part.parameters()) / 1e6:.1f} M parameters", flush=True)
    began = time.time()
    for iteration in range(1, o["iterations"] + 1):
        noisy, clean = spectrograms(iteration, o)
        loss = pipe.train_step(noisy, clean)
        if iteration == 1 or iteration % o["print"] == 0:
            value = pipe.share_loss(loss)
            print(f"[rank {rank}] iteration {iteration}: loss {value:.5f}, {(time.time() - began) / iteration:.3f} s each", flush=True)
        if iteration % o["save"] == 0:
            pipe.save(iteration)
            print(f"[rank {rank}] parts saved", flush=True)
    dist.barrier()
    print(f"[rank {rank}] end", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
