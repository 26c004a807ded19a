"""How to walk, by evolution strategies. Process 0 holds the policy: it hands out seeds and weights (scatter, broadcast), every process tries its
part of the population in a vectorised simulation, results come back by gather. The first process starts the others."""
import argparse
import logging
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

LEGS, SENSES, MUSCLES, HIDDEN = 4, 20, 8, 48
SIZES = (HIDDEN * SENSES, HIDDEN, MUSCLES * HIDDEN, MUSCLES)
log = logging.getLogger("gaits")


def spawn(o):
    """Starts the other processes with this command line."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(o.processes))
    return [subprocess.Popen([sys.executable, "-u", *sys.argv], env={**os.environ, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(1, o.processes)]


class Ground:
    """Many walkers at once, each on its own stretch of hilly ground."""

    def __init__(self, count, steps, device):
        self.count, self.steps, self.device = count, steps, device
        self.hills = torch.rand(512, generator=torch.Generator().manual_seed(8)).to(device)

    def walk(self, theta):
        w1, b1, w2, b2 = theta.split(SIZES, 1)
        w1, w2 = w1.view(-1, HIDDEN, SENSES), w2.view(-1, MUSCLES, HIDDEN)
        at, speed = torch.zeros(len(theta), 1, device=self.device), torch.zeros(len(theta), 1, device=self.device)
        joints = torch.zeros(len(theta), MUSCLES, device=self.device)
        bend = torch.zeros_like(joints)
        path, tired = [], 0.0
        for step in range(self.steps):
            hill = self.hills[(at.long() % 500) + torch.arange(2, device=self.device)]
            clock = at.new_full((len(theta), 1), 0.3 * step)
            senses = torch.cat([joints, bend, speed, hill, clock.sin()], 1)
            force = torch.baddbmm(b2[:, :, None], w2, torch.baddbmm(b1[:, :, None], w1, senses[:, :, None]).tanh())[:, :, 0].tanh()
            bend = 0.8 * bend + 0.2 * force
            joints = (joints + 0.3 * bend).clamp(-1, 1)
            push = (joints[:, :LEGS] * bend[:, LEGS:]).sum(1, keepdim=True)
            speed = 0.9 * speed + 0.1 * push - 0.02 * (hill[:, 1:] - hill[:, :1])
            at = (at + speed).clamp(0, 400)
            tired = tired + force.square().mean(1)
            path.append(at[:, 0])
        return at[:, 0] - 0.01 * tired, torch.stack(path, 1)


def dice(seeds, device):
    """One direction for each seed; the same on every process."""
    rows = [torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(int(s))) for s in seeds]
    return torch.stack(rows).to(device)


class Herd:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        self.theta = torch.zeros(sum(SIZES), device=device)
        self.ground = Ground(2 * o.pairs, o.moves, device)
        self.draw = torch.Generator().manual_seed(77)

    def hand_out(self):
        seeds = torch.empty(self.o.pairs, dtype=torch.long, device=self.device)
        parts = None
        if self.rank == 0:
            parts = list(torch.randint(0, 1 << 40, (self.world, self.o.pairs), generator=self.draw).to(self.device))
        dist.scatter(seeds, parts, src=0)
        dist.broadcast(self.theta, src=0)
        return seeds

    def attempt(self, seeds):
        noise = dice(seeds.tolist(), self.device)
        return self.ground.walk(torch.cat([self.theta + self.o.sigma * noise, self.theta - self.o.sigma * noise]))

    def collect(self, x):
        into = [torch.empty_like(x) for _ in range(self.world)] if self.rank == 0 else None
        dist.gather(x, into, dst=0)
        return into

    def improve(self, seeds, scores):
        """Process 0: a step along the directions that scored well."""
        rank_of = torch.cat(scores).argsort().argsort().float()
        rank_of = rank_of / (len(rank_of) - 1) - 0.5
        for part, given in zip(rank_of.chunk(self.world), seeds):
            up, down = part.chunk(2)
            self.theta += self.o.rate / self.o.sigma * ((up - down) @ dice(given.tolist(), self.device)) / self.o.pairs


def evolve(o):
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s process {rank}: %(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    herd, began = Herd(o, rank, world, device), time.time()
    log.info("%d processes, %d walkers each", world, 2 * o.pairs)
    for generation in range(1, o.generations + 1):
        seeds = herd.hand_out()
        score, path = herd.attempt(seeds)
        scores = herd.collect(score)
        paths = herd.collect(path)
        given = herd.collect(seeds)
        if rank == 0:
            herd.improve(given, scores)
            if generation <= 3 or generation % o.every == 0:
                best = torch.cat(scores).max().item()
                log.info("generation %d best %.3f mean %.3f way %.2f, %.1f s", generation, best, torch.cat(scores).mean().item(),
                         torch.cat(paths)[:, -1].mean().item(), time.time() - began)
            if generation % o.trial == 0:
                alone, _ = herd.ground.walk(herd.theta[None])
                log.info("generation %d walks %.3f without noise", generation, alone.item())
                torch.save(herd.theta.cpu(), "gait.pt")
    dist.barrier()
    log.info("walked %d generations", o.generations)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--generations", type=int, default=150)
    p.add_argument("--pairs", type=int, default=64)
    p.add_argument("--moves", type=int, default=48)
    p.add_argument("--sigma", type=float, default=0.1)
    p.add_argument("--rate", type=float, default=0.05)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--trial", type=int, default=50)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    others = spawn(o) if "LOCAL_RANK" not in os.environ else []
    evolve(o)
    for other in others:
        other.wait(20)
