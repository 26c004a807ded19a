#!/usr/bin/env python3
"""Finds the way out of mazes: proximal policy optimization. Every rank plays its own mazes; gradients are averaged after each minibatch.
Starts a process for each GPU:

    python wander.py --ranks 2 --games 256
"""
import argparse
import datetime
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributions import Categorical

MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


class Mazes:
    """Many mazes at once, in numpy. A game ends at the exit or when patience does."""

    def __init__(self, games, edge, seed):
        self.rng, self.games, self.edge, self.density = np.random.default_rng(seed), games, edge, 0.15
        self.walls = np.ones((games, edge, edge), bool)
        self.place, self.exit = np.zeros((games, 2), int), np.zeros((games, 2), int)
        self.age = np.zeros(games, int)
        self.solved, self.ended = 0, 0
        self.renew(np.arange(games))

    def renew(self, which):
        n, e = len(which), self.edge
        if n == 0:
            return
        walls = np.ones((n, e, e), bool)
        walls[:, 1:-1, 1:-1] = self.rng.random((n, e - 2, e - 2)) < self.density
        self.place[which], self.exit[which] = self.rng.integers(1, e - 1, (n, 2)), self.rng.integers(1, e - 1, (n, 2))
        for spot in (self.place[which], self.exit[which]):
            walls[np.arange(n), spot[:, 0], spot[:, 1]] = False
        self.walls[which], self.age[which] = walls, 0

    def look(self):
        planes = np.zeros((self.games, 3, self.edge, self.edge), np.float32)
        each = np.arange(self.games)
        planes[:, 0] = self.walls
        planes[each, 1, self.place[:, 0], self.place[:, 1]] = 1
        planes[each, 2, self.exit[:, 0], self.exit[:, 1]] = 1
        return planes

    def move(self, actions):
        each = np.arange(self.games)
        target = self.place + MOVES[actions]
        free = ~self.walls[each, target[:, 0], target[:, 1]]
        self.place[free] = target[free]
        self.age += 1
        out = (self.place == self.exit).all(1)
        over = out | (self.age >= 4 * self.edge)
        reward = np.where(out, 1.0, np.where(free, -0.01, -0.05)).astype(np.float32)
        self.solved += int(out.sum())
        self.ended += int(over.sum())
        self.renew(np.flatnonzero(over))
        return reward, over


class Policy(nn.Module):
    def __init__(self, width, edge):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 16, 1), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(16 * edge * edge, 512), nn.ReLU())
        self.action, self.value = nn.Linear(512, 4), nn.Linear(512, 1)

    def forward(self, planes):
        x = self.body(planes)
        return self.action(x), self.value(x)[:, 0]


def average_gradients(net, world):
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for p in net.parameters():
        p.grad.copy_(flat[start:start + p.numel()].view_as(p))
        start += p.numel()


class Player:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        self.mazes = Mazes(o.games, o.edge, [o.seed, rank])
        torch.manual_seed(o.seed)
        self.net = Policy(o.width, o.edge).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), o.lr, eps=1e-5)
        self.generator = torch.Generator().manual_seed(50 + rank)
        self.best, self.began = -1.0, time.time()

    def play(self):
        """A stretch of all games: what was seen, done, and got."""
        kept = {name: [] for name in ("planes", "action", "chance", "value", "reward", "over")}
        for _ in range(self.o.stretch):
            planes = torch.from_numpy(self.mazes.look()).to(self.device)
            with torch.no_grad():
                logits, value = self.net(planes)
            choice = Categorical(logits=logits)
            action = choice.sample()
            reward, over = self.mazes.move(action.cpu().numpy())
            for name, x in zip(kept, (planes, action, choice.log_prob(action), value, torch.from_numpy(reward), torch.from_numpy(over))):
                kept[name].append(x.to(self.device))
        with torch.no_grad():
            last = self.net(torch.from_numpy(self.mazes.look()).to(self.device))[1]
        return {name: torch.stack(x) for name, x in kept.items()}, last

    def advantages(self, kept, last):
        gain, running = torch.zeros_like(kept["value"]), torch.zeros_like(last)
        for t in reversed(range(self.o.stretch)):
            go_on = 1.0 - kept["over"][t].float()
            following = kept["value"][t + 1] if t + 1 < self.o.stretch else last
            surprise = kept["reward"][t] + 0.99 * following * go_on - kept["value"][t]
            running = surprise + 0.99 * 0.95 * go_on * running
            gain[t] = running
        return gain, gain + kept["value"]

    def learn(self, kept, last):
        gain, returns = self.advantages(kept, last)
        rows = {name: x.flatten(0, 1) for name, x in {**kept, "gain": gain, "returns": returns}.items()}
        losses = []
        for part in torch.randperm(len(gain.flatten()), generator=self.generator).to(self.device).chunk(self.o.parts):
            batch = {name: x[part] for name, x in rows.items()}
            logits, value = self.net(batch["planes"])
            choice = Categorical(logits=logits)
            ratio = (choice.log_prob(batch["action"]) - batch["chance"]).exp()
            better = (batch["gain"] - batch["gain"].mean()) / (batch["gain"].std() + 1e-6)
            policy = -torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
            loss = policy + 0.5 * (value - batch["returns"]).square().mean() - 0.01 * choice.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            average_gradients(self.net, self.world)
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean().item()

    def gather(self, entry):
        entries = [None] * self.world
        dist.all_gather_object(entries, entry)
        return entries

    def agree(self, number):
        """Rank 0 says how dense the walls are, and when it is over."""
        word = [{"density": min(0.3, 0.15 + number / 10000), "over": time.time() - self.began > 60 * self.o.minutes}]
        dist.broadcast_object_list(word, src=0)
        self.mazes.density = word[0]["density"]
        return word[0]["over"]

    def run(self):
        number = 0
        while True:
            number += 1
            kept, last = self.play()
            loss = self.learn(kept, last)
            if number % self.o.report == 0:
                entries = self.gather({"reward": kept["reward"].mean().item(), "solved": self.mazes.solved, "ended": self.mazes.ended})
                self.mazes.solved = self.mazes.ended = 0
                share = sum(e["solved"] for e in entries) / max(1, sum(e["ended"] for e in entries))
                if self.rank == 0:
                    print(f"round {number} loss {loss:.4f} reward {sum(e['reward'] for e in entries) / self.world:.4f} solved {share:.3f} "
                          f"{time.time() - self.began:.1f} s", flush=True)
                self.best = max(self.best, share)
            if number % self.o.save == 0:
                if self.rank == 0:
                    torch.save(self.net.state_dict(), "wanderer.pt")
                    print(f"round {number} saved, best {self.best:.3f}", flush=True)
                dist.barrier()
            if number % 20 == 0 and self.agree(number):
                break
        print(f"rank {self.rank}: end, {number} rounds", flush=True)


def work(rank, world, o):
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.set_num_threads(2)
    address = f"tcp://127.0.0.1:{os.environ.get('MASTER_PORT', '29600')}"
    dist.init_process_group("nccl" if cuda else "gloo", init_method=address, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=o.timeout))
    player = Player(o, rank, world, device)
    dist.barrier()
    print(f"rank {rank} of {world}: {o.games} mazes, {sum(p.numel() for p in player.net.parameters()) / 1e6:.2f}M weights, {device}", flush=True)
    player.run()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(ranks=2, games=256, edge=15, stretch=24, parts=4, width=96, seed=2, report=5, save=200).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    mp.spawn(work, args=(o.ranks, o), nprocs=o.ranks)


if __name__ == "__main__":
    main()
