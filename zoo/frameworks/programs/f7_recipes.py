"""Two pipeline stages that torch.distributed.pipelining cuts out of a traced model: the next step of a recipe, GPipe."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

STEPS_OF_COOKING = 1200


class Stir(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.calm = nn.LayerNorm(width)
        self.near = nn.Conv1d(width, width, 5, groups=width)
        self.far = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = nn.functional.pad(self.calm(x).transpose(1, 2), (4, 0))
        return x + self.far(self.near(y).transpose(1, 2))


class Cook(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.ingredients = nn.Embedding(STEPS_OF_COOKING, width)
        self.stirs = nn.ModuleList(Stir(width) for _ in range(depth))
        self.serve = nn.Linear(width, STEPS_OF_COOKING)

    def forward(self, recipe):
        x = self.ingredients(recipe)
        for stir in self.stirs:
            x = stir(x)
        return self.serve(x)


def taste(guess, wanted):
    return nn.functional.cross_entropy(guess.flatten(0, 1), wanted.flatten())


class Kitchen:
    """Both stages draw the same recipes: the first one reads them, the last one has the following steps as targets."""

    def __init__(self, o, rank):
        self.o, self.rank = o, rank

    def __len__(self):
        return self.o.batches

    def __iter__(self):
        for number in range(1, len(self) + 1):
            g = torch.Generator().manual_seed(number)
            first = torch.randint(0, STEPS_OF_COOKING, (self.o.batch, 1), generator=g)
            recipe = (first + (1 + first % 5) * torch.arange(self.o.length + 1)) % STEPS_OF_COOKING
            yield recipe[:, :-1].contiguous(), recipe[:, 1:].contiguous()


def stage_of(o, rank, world, device):
    torch.manual_seed(3)
    cook = Cook(o.width, o.depth)
    example = torch.zeros(o.batch // o.micros, o.length, dtype=torch.long)
    cut = pipeline(cook, (example,), split_spec={f"stirs.{o.depth // 2}": SplitPoint.BEGINNING})
    stage = cut.build_stage(rank, device)
    weights = sum(w.numel() for w in stage.submod.parameters())
    print(f"stage {rank} of {world}: {weights / 1e6:.2f} M weights on {device}", flush=True)
    return stage


def train(o):
    rank, world, local = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{local}") if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(seconds=o.timeout))
    kitchen = Kitchen(o, rank)
    stage = stage_of(o, rank, world, device)
    schedule = ScheduleGPipe(stage, n_microbatches=o.micros, loss_fn=taste)
    opt = torch.optim.Adam(stage.submod.parameters(), lr=3e-4)
    began, meals = time.perf_counter(), 0
    for day in range(o.days):
        for recipe, following in kitchen:
            meals += 1
            opt.zero_grad()
            losses = []
            if rank == 0:
                schedule.step(recipe.to(device))
            else:
                schedule.step(target=following.to(device), losses=losses)
            opt.step()
            if losses and (meals == 1 or meals % o.tell == 0):
                print(f"day {day} meal {meals}: loss {torch.stack(losses).mean().item():.4f} ({(time.perf_counter() - began) / meals:.3f} s each)", flush=True)
        torch.save(stage.submod.state_dict(), f"stage-{rank}.pt")
        dist.barrier()
    if rank == world - 1:
        print(f"{meals} meals cooked", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--days", type=int, default=2)
    p.add_argument("--batches", type=int, default=100)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--micros", type=int, default=4)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=6)
    p.add_argument("--tell", type=int, default=10)
    p.add_argument("--timeout", type=int, default=1800)
    train(p.parse_args())
