"""Group-relative policy optimisation on sums: ranks 0 and 1 train, ranks 2 and 3 sample. Trainers and samplers have an NCCL group each;
rollouts and weights travel over Gloo."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

VOCAB, ASK, TELL = 16, 6, 4
PLUS, IS = 10, 11


class Policy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, width), nn.Embedding(ASK + TELL, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.full((n, n), float("-inf"), device=ids.device).triu(1)
        return self.head(self.body(self.words(ids) + self.places.weight[:n], mask=mask))


def questions(iteration, rank, count):
    g = torch.Generator().manual_seed(1000 * iteration + rank)
    a, b = torch.randint(0, 50, (2, count), generator=g)
    ids = torch.stack([a // 10, a % 10, torch.full_like(a, PLUS), b // 10, b % 10, torch.full_like(a, IS)], 1)
    return ids, a + b


@torch.no_grad()
def rollout(policy, ids, samples):
    ids = ids.repeat_interleave(samples, 0)
    for _ in range(TELL):
        p = torch.softmax(policy(ids)[:, -1], -1)
        ids = torch.cat([ids, torch.multinomial(p, 1)], 1)
    return ids


def reward(ids, totals, samples):
    totals = totals.repeat_interleave(samples, 0).to(ids.device)
    guess = ids[:, ASK] * 10 + ids[:, ASK + 1]
    return (ids[:, ASK:] < 10).float().mean(1) + 2.0 * (guess == totals).float()


def flat(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


class Trainer:
    def __init__(self, args, rank, group, device):
        self.args, self.rank, self.group, self.device = args, rank, group, device
        torch.manual_seed(5)
        self.policy = Policy(args.width).to(device)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=args.lr)
        self.rows = args.questions * args.samples

    def update(self, ids, advantages):
        for _ in range(self.args.epochs):
            logits = self.policy(ids[:, :-1])[:, ASK - 1:]
            chosen = torch.log_softmax(logits, -1).gather(2, ids[:, ASK:, None])[..., 0]
            loss = -(advantages[:, None] * chosen).mean()
            self.optimizer.zero_grad()
            loss.backward()
            grads = [p.grad for p in self.policy.parameters()]
            vector = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(vector, group=self.group)
            at = 0
            for g in grads:
                g.copy_(vector[at:at + g.numel()].view_as(g) / 2)
                at += g.numel()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self.optimizer.step()
        return loss.item()

    def receive(self):
        ids = torch.empty(self.rows, ASK + TELL, dtype=torch.int64)
        advantages = torch.empty(self.rows)
        dist.recv(ids, src=self.rank + 2)
        dist.recv(advantages, src=self.rank + 2)
        return ids.to(self.device), advantages.to(self.device)

    def iterate(self, iteration):
        began = time.time()
        ids, advantages = self.receive()
        waited = time.time() - began
        loss = self.update(ids, advantages)
        if self.rank == 0 and iteration % 5 == 0:
            print(f"trainer | iteration {iteration} | loss {loss:+.4f} | waited {waited:.2f} s | trained {time.time() - began - waited:.2f} s", flush=True)


class Sampler:
    def __init__(self, args, rank, group, device):
        self.args, self.rank, self.group, self.device = args, rank, group, device
        torch.manual_seed(5)
        self.policy = Policy(args.width).to(device)
        torch.manual_seed(50 + rank)

    def iterate(self, iteration):
        ids, totals = questions(iteration, self.rank, self.args.questions)
        ids = rollout(self.policy, ids.to(self.device), self.args.samples)
        rewards = reward(ids, totals, self.args.samples)
        stats = torch.stack([rewards.sum(), rewards.square().sum(), torch.tensor(float(len(rewards)), device=self.device)])
        dist.all_reduce(stats, group=self.group)
        mean = stats[0] / stats[2]
        spread = (stats[1] / stats[2] - mean**2).clamp(min=1e-4).sqrt()
        grouped = rewards.view(-1, self.args.samples)
        advantages = ((grouped - grouped.mean(1, keepdim=True)) / spread).flatten()
        dist.send(ids.cpu(), dst=self.rank - 2)
        dist.send(advantages.cpu(), dst=self.rank - 2)
        if self.rank == 2 and iteration % 10 == 0:
            print(f"sampler | iteration {iteration} | reward {mean.item():.3f} +- {spread.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--questions", type=int, default=128)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--sync-every", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=1800)
    args = parser.parse_args()
    rank, cuda = int(os.environ["RANK"]), torch.cuda.is_available()
    device = torch.device("cuda", rank % 2) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    limit = timedelta(seconds=args.timeout)
    dist.init_process_group("gloo", timeout=limit)
    kind = "nccl" if cuda else "gloo"
    trainers = dist.new_group([0, 1], backend=kind, timeout=limit)
    samplers = dist.new_group([2, 3], backend=kind, timeout=limit)
    me = Trainer(args, rank, trainers, device) if rank < 2 else Sampler(args, rank, samplers, device)
    print(f"rank {rank}: {type(me).__name__.lower()} on {device}", flush=True)
    for iteration in range(1, args.iterations + 1):
        me.iterate(iteration)
        if iteration % args.sync_every == 0:
            weights = flat(me.policy).cpu()
            dist.broadcast(weights, src=0)
            if rank >= 2:
                nn.utils.vector_to_parameters(weights.to(device), me.policy.parameters())
        if rank == 0 and iteration % 40 == 0:
            torch.save(me.policy.state_dict(), f"policy-{iteration}.pt")
    dist.barrier()
    print(f"rank {rank}: finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
