#!/usr/bin/env python3
"""Where will the ships be? A transformer over AIS tracks, in two stages on two GPUs, scheduled by torch.distributed.pipelining.

Both ranks draw the same tracks from the number of the step: the first needs the past, the last one the future.

    torchrun --nproc-per-node=2 route.py --schedule 1f1b --chunks 4
"""
import argparse
import datetime
import logging
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional as F

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
log = logging.getLogger("route")


class Tracks:
    """Ships keep their speed and turn slowly; now and then one drifts."""

    def __init__(self, seed, ships, past, ahead):
        self.seed, self.ships, self.past, self.ahead = seed, ships, past, ahead

    def at(self, number):
        rng = np.random.default_rng([self.seed, number])
        steps = self.past + self.ahead
        turn = rng.normal(0, 0.03, (self.ships, 1)) + rng.normal(0, 0.02, (self.ships, steps))
        course = rng.uniform(0, 2 * np.pi, (self.ships, 1)) + np.cumsum(turn, 1)
        speed = np.clip(rng.normal(0.12, 0.04, (self.ships, 1)) + rng.normal(0, 0.01, (self.ships, steps)), 0, None)
        east, north = np.cumsum(speed * np.sin(course), 1), np.cumsum(speed * np.cos(course), 1)
        kind = np.repeat(rng.integers(0, 5, (self.ships, 1)), steps, 1) / 5
        full = np.stack([east, north, np.sin(course), np.cos(course), speed, kind], -1).astype(np.float32)
        return torch.from_numpy(full[:, :self.past]), torch.from_numpy(full[:, self.ahead:, :2].copy())


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.back = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.back(F.gelu(self.wide(self.n2(x))))


class Enter(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.read = nn.Linear(6, o.dim)
        self.when = nn.Parameter(0.02 * torch.randn(o.past, o.dim))
        self.layers = nn.Sequential(*[Layer(o.dim, o.heads) for _ in range(o.layers)])

    def forward(self, past):
        return self.layers(self.read(past) + self.when)


class Leave(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.layers = nn.Sequential(*[Layer(o.dim, o.heads) for _ in range(o.layers)])
        self.norm, self.place = nn.LayerNorm(o.dim), nn.Linear(o.dim, 2)

    def forward(self, hidden):
        return self.place(self.norm(self.layers(hidden)))


def distance(predicted, future):
    """Loss of the last stage."""
    return F.huber_loss(predicted.float(), future)


class Pilot:
    def __init__(self, o, rank, device):
        self.o, self.rank, self.device = o, rank, device
        torch.manual_seed(300 + rank)
        self.net = (Enter(o) if rank == 0 else Leave(o)).to(device, torch.bfloat16)
        self.stage = PipelineStage(self.net, rank, 2, device)
        self.schedule = SCHEDULES[o.schedule](self.stage, n_microbatches=o.chunks, loss_fn=distance)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), o.lr)
        self.tracks, self.checks = Tracks(o.seed, o.ships, o.past, o.ahead), Tracks(10 ** 6, o.ships, o.past, o.ahead)
        self.began = time.time()

    def train_step(self, number):
        past, future = self.tracks.at(number)
        losses = []
        if self.rank == 0:
            self.schedule.step(past.to(self.device, torch.bfloat16))
        else:
            self.schedule.step(target=future.to(self.device), losses=losses)
        self.size = nn.utils.clip_grad_norm_(self.net.parameters(), 1.0).item()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.stack([x.detach() for x in losses]).mean().item() if losses else None

    @torch.no_grad()
    def check(self, count):
        """Mean distance on other tracks, known to the last stage."""
        errors = []
        for number in range(count):
            past, future = self.checks.at(number)
            if self.rank == 0:
                dist.send(self.net(past.to(self.device, torch.bfloat16)).contiguous(), 1)
            else:
                hidden = torch.empty(self.o.ships, self.o.past, self.o.dim, dtype=torch.bfloat16, device=self.device)
                dist.recv(hidden, 0)
                errors.append((self.net(hidden).float() - future.to(self.device)).norm(dim=-1).mean().item())
        return sum(errors) / max(1, len(errors))

    def save(self, number):
        torch.save({"net": self.net.state_dict(), "step": number}, f"route-{self.rank}.pt")
        dist.barrier()

    def late(self):
        flag = torch.tensor([time.time() - self.began > 60 * self.o.minutes], dtype=torch.int32, device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def sail(self):
        number = 0
        while True:
            number += 1
            loss = self.train_step(number)
            if self.rank == 1 and number % self.o.log_every == 0:
                log.info("step %d loss %.5f gradient %.3f after %.1f s", number, loss, self.size, time.time() - self.began)
            if number % self.o.check_every == 0:
                error = self.check(self.o.checks)
                if self.rank == 1:
                    log.info("step %d off by %.3f miles", number, error)
            if number % self.o.save_every == 0:
                self.save(number)
                log.info("step %d stage %d saved", number, self.rank)
            if number % 20 == 0 and self.late():
                break
        return number


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    p.add_argument("--chunks", type=int, default=4)
    for name, value in dict(dim=768, heads=12, layers=6, ships=64, past=160, ahead=16, seed=5, log_every=5, check_every=150, checks=8, save_every=250).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=o.timeout))
    pilot = Pilot(o, rank, device)
    dist.barrier()
    log.info("stage %d of 2, %.1fM weights, %s, %d chunks", rank, sum(w.numel() for w in pilot.net.parameters()) / 1e6, o.schedule, o.chunks)
    steps = pilot.sail()
    log.info("stage %d: end after %d steps", rank, steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
