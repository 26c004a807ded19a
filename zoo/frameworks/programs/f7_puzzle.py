"""Policy gradient on number puzzles: process 0 learns, process 1 plays with the last weights and judges the plays. Weights go by NCCL, plays
by Gloo; a monitored barrier keeps both in the same round."""
import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

LEARNER, GAMER = 0, 1
SYMBOLS, CLUE, TRIES = 24, 8, 12


class Mind(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, width)
        self.rnn = nn.LSTM(width, width, depth, batch_first=True)
        self.choose = nn.Linear(width, SYMBOLS)

    def forward(self, symbols, state=None):
        out, state = self.rnn(self.symbol(symbols), state)
        return self.choose(out), state


def verdict(clue, tries):
    """Share of the tries that continue the clue, as a Python program would check it."""
    aim = [(c * 3 + 1) % SYMBOLS for c in clue]
    hits = sum(t == aim[i % CLUE] for i, t in enumerate(tries))
    return hits / len(tries)


def check_syntax(round_number):
    """Every tenth round a play is run as a program."""
    done = subprocess.run([sys.executable, "-S", "-c", f"print({round_number} * 2)"], capture_output=True, text=True)
    return done.stdout.strip()


@torch.no_grad()
def play(mind, clues, group):
    symbols = clues.repeat_interleave(group, 0)
    logits, state = mind(symbols)
    for _ in range(TRIES):
        nxt = torch.multinomial(logits[:, -1].float().softmax(-1), 1)
        symbols = torch.cat([symbols, nxt], 1)
        logits, state = mind(nxt, state)
    return symbols


class Table:
    """What both processes share."""

    def __init__(self, o):
        self.rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", local) if gpu else torch.device("cpu")
        if gpu:
            torch.cuda.set_device(self.device)
        self.patience = timedelta(seconds=o.timeout)
        dist.init_process_group("nccl" if gpu else "gloo", timeout=self.patience)
        self.post = dist.new_group(backend="gloo", timeout=self.patience)
        torch.manual_seed(40)
        self.mind = Mind(o.width, o.depth).to(self.device)
        self.size = (o.clues * o.group, CLUE + TRIES)

    def share_weights(self):
        flat = parameters_to_vector(self.mind.parameters()).detach().contiguous()
        dist.broadcast(flat, LEARNER)
        if self.rank != LEARNER:
            vector_to_parameters(flat, self.mind.parameters())

    def meet(self):
        dist.monitored_barrier(group=self.post, timeout=self.patience, wait_all_ranks=True)


def learn(table, o):
    opt = torch.optim.AdamW(table.mind.parameters(), lr=1e-3)
    began = time.time()
    for number in range(1, o.rounds + 1):
        table.share_weights()
        plays, rewards = torch.empty(table.size, dtype=torch.long), torch.empty(table.size[0])
        dist.recv(plays, GAMER, group=table.post)
        dist.recv(rewards, GAMER, group=table.post)
        plays, reward = plays.to(table.device), rewards.to(table.device).view(-1, o.group)
        gain = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).flatten()
        for _ in range(o.epochs):
            logp = table.mind(plays[:, :-1])[0].float().log_softmax(-1).gather(-1, plays[:, 1:, None])[:, CLUE - 1:, 0]
            ratio = (logp - logp.detach()).exp()
            loss = -(ratio * gain[:, None]).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(table.mind.parameters(), 1.0)
            opt.step()
        if number == 1 or number % o.report == 0:
            print(f"[learner] round {number:4d} reward {reward.mean().item():.3f} loss {loss.item():+.4f} t={time.time() - began:.1f}", flush=True)
        if number % o.save == 0:
            torch.save(table.mind.state_dict(), "mind.pt")
        table.meet()


def game(table, o):
    dice = random.Random(9)
    played, spent = 0, 0.0
    for number in range(1, o.rounds + 1):
        table.share_weights()
        began = time.time()
        clues = torch.tensor([[dice.randrange(SYMBOLS) for _ in range(CLUE)] for _ in range(o.clues)], device=table.device)
        plays = play(table.mind, clues, o.group).cpu()
        rewards = torch.tensor([verdict(one[:CLUE], one[CLUE:]) for one in plays.tolist()])
        if number % 10 == 0:
            check_syntax(number)
        dist.send(plays, LEARNER, group=table.post)
        dist.send(rewards, LEARNER, group=table.post)
        played, spent = played + len(plays), spent + time.time() - began
        if number == 1 or number % o.report == 0:
            print(f"[gamer]   round {number:4d} plays {played} rate {played / spent:.0f}/s best {rewards.max().item():.2f}", flush=True)
        table.meet()


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=120)
    p.add_argument("--clues", type=int, default=64)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--report", type=int, default=5)
    p.add_argument("--save", type=int, default=40)
    p.add_argument("--timeout", type=int, default=1800)
    return p.parse_args()


if __name__ == "__main__":
    given = arguments()
    table = Table(given)
    with contextlib.closing(open(f"role-{table.rank}.txt", "w")) as note:
        note.write("learner" if table.rank == LEARNER else "gamer")
    (learn if table.rank == LEARNER else game)(table, given)
    dist.barrier(group=table.post)
    dist.destroy_process_group()
    print(f"process {table.rank} ends", flush=True)
