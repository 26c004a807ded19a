"""Lifts of a building learn where to wait: rank 0 learns, rank 1 acts in simulated buildings that run in processes of their own. Weights go to the
actor and experience to the learner by broadcast; both agree on the numbers of each iteration by all_reduce."""
import argparse
import json
import logging
import multiprocessing
import os
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical

LEARNER, ACTOR = 0, 1
FLOORS, LIFTS = 12, 2
SEEN = FLOORS + LIFTS * FLOORS
log = logging.getLogger("lifts")


class Buildings:
    """Many buildings at once; a lift moves down, stays or moves up."""

    def __init__(self, count, seed):
        self.rng, self.count = np.random.default_rng(seed), count
        self.waiting = np.zeros((count, FLOORS), np.float32)
        self.floor = self.rng.integers(0, FLOORS, (count, LIFTS))

    def look(self):
        return np.concatenate([self.waiting, np.eye(FLOORS, dtype=np.float32)[self.floor].reshape(self.count, -1)], 1)

    def move(self, actions):
        self.floor = np.clip(self.floor + actions - 1, 0, FLOORS - 1)
        served = np.zeros(self.count, np.float32)
        for lift in range(LIFTS):
            rows = np.arange(self.count)
            served += self.waiting[rows, self.floor[:, lift]]
            self.waiting[rows, self.floor[:, lift]] = 0
        self.waiting += self.rng.random((self.count, FLOORS)) < 0.05
        self.waiting = np.minimum(self.waiting, 5)
        return self.look(), served - 0.1 * self.waiting.sum(1)


def simulate(pipe, count, seed):
    buildings = Buildings(count, seed)
    pipe.send((buildings.look(), np.zeros(count, np.float32)))
    moves = 0
    while True:
        actions = pipe.recv()
        if actions is None:
            return
        moves += 1
        pipe.send(buildings.move(actions))


class Mind(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SEEN, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, 3 * LIFTS), nn.Linear(width, 1)

    def forward(self, seen):
        x = self.body(seen)
        return self.policy(x).unflatten(-1, (LIFTS, 3)), self.value(x)[..., 0]


class Meter:
    """Numbers of the actor, read by a thread that writes them to a file every second."""

    def __init__(self, path):
        self.path, self.numbers = path, {}
        self.numbers_lock, self.file_lock = threading.Lock(), threading.Lock()
        threading.Thread(target=self.write, name="meter", daemon=True).start()

    def put(self, **numbers):
        with self.numbers_lock:
            self.numbers.update(numbers)

    def write(self):
        while True:
            time.sleep(1)
            with self.numbers_lock:
                line = json.dumps(self.numbers)
            with self.file_lock, open(self.path, "a") as file:
                file.write(line + "\n")


class Job:
    def __init__(self, o, rank, device):
        self.o, self.rank, self.device = o, rank, device
        torch.manual_seed(8)
        self.mind = Mind(o.width).to(device)
        rows = 2 * o.buildings
        self.seen = torch.zeros(o.length + 1, rows, SEEN, device=device)
        self.actions = torch.zeros(o.length, rows, LIFTS, dtype=torch.long, device=device)
        self.chance = torch.zeros(o.length, rows, device=device)
        self.rewards = torch.zeros(o.length, rows, device=device)

    def share_weights(self):
        for weight in self.mind.parameters():
            dist.broadcast(weight.data, LEARNER)

    def share_experience(self):
        for part in (self.seen, self.actions, self.chance, self.rewards):
            dist.broadcast(part, ACTOR)

    def agree(self, reward, loss):
        numbers = torch.tensor([reward, loss], device=self.device)
        dist.all_reduce(numbers)
        return numbers.tolist()


def act(job, pipes, meter, iteration):
    o, began = job.o, time.time()
    with torch.no_grad():
        for t in range(o.length):
            logits, _ = job.mind(job.seen[t])
            choice = Categorical(logits=logits)
            actions = choice.sample()
            job.actions[t], job.chance[t] = actions, choice.log_prob(actions).sum(-1)
            moves = actions.cpu().numpy()
            for pipe, part in zip(pipes, np.split(moves, 2)):
                pipe.send(part)
            answers = [pipe.recv() for pipe in pipes]
            job.seen[t + 1] = torch.from_numpy(np.concatenate([a for a, _ in answers]))
            job.rewards[t] = torch.from_numpy(np.concatenate([r for _, r in answers]))
    meter.put(iteration=iteration, seconds=round(time.time() - began, 3))
    return job.rewards.mean().item()


def learn(job, optimizer):
    o = job.o
    with torch.no_grad():
        values = job.mind(job.seen)[1]
        gain, advantage = torch.zeros_like(values[0]), torch.zeros_like(job.rewards)
        for t in reversed(range(o.length)):
            gain = job.rewards[t] + 0.97 * values[t + 1] - values[t] + 0.97 * 0.9 * gain
            advantage[t] = gain
        target = advantage + values[:-1]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    for _ in range(o.epochs):
        logits, value = job.mind(job.seen[:-1])
        choice = Categorical(logits=logits)
        ratio = (choice.log_prob(job.actions).sum(-1) - job.chance).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = -gain.mean() + 0.5 * (value - target).pow(2).mean() - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(job.mind.parameters(), 0.5)
        optimizer.step()
    return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=120)
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--buildings", type=int, default=64)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("--keep", type=int, default=50)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    pipes = []
    if rank == ACTOR:  # before CUDA is used
        for seed in range(2):
            here, there = multiprocessing.get_context("fork").Pipe()
            multiprocessing.get_context("fork").Process(target=simulate, args=(there, o.buildings, seed), daemon=True).start()
            there.close()
            pipes.append(here)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    job = Job(o, rank, device)
    optimizer = torch.optim.Adam(job.mind.parameters(), lr=5e-4)
    meter = Meter("meter.jsonl") if rank == ACTOR else None
    if rank == ACTOR:
        job.seen[-1] = torch.from_numpy(np.concatenate([pipe.recv()[0] for pipe in pipes]))
    log.info("rank %d is the %s", rank, "learner" if rank == LEARNER else "actor")
    began = time.time()
    for iteration in range(1, o.iterations + 1):
        job.share_weights()
        reward = loss = 0.0
        if rank == ACTOR:
            job.seen[0] = job.seen[-1].clone()
            reward = act(job, pipes, meter, iteration)
        job.share_experience()
        if rank == LEARNER:
            loss = learn(job, optimizer)
        reward, loss = job.agree(reward, loss)
        if rank == LEARNER and (iteration <= 3 or iteration % o.show == 0):
            log.info("iteration %d reward %.4f loss %.4f, %.1f s", iteration, reward, loss, time.time() - began)
        if iteration % o.keep == 0:
            if rank == LEARNER:
                torch.save(job.mind.state_dict(), "mind.pt")
            dist.barrier()
    for pipe in pipes:
        pipe.send(None)
    dist.barrier()
    log.info("rank %d: over after %d iterations", rank, o.iterations)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
