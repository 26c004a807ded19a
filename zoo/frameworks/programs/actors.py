"""Two learners (ranks 0 and 1) and two actors (ranks 2 and 3); each pair has its own NCCL group, the pairs talk over Gloo."""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

UPDATES = int(sys.argv[1]) if len(sys.argv) > 1 else 120
LIMIT = timedelta(seconds=int(os.environ.get("GROUP_TIMEOUT", "1800")))
CUDA = torch.cuda.is_available()


def policy():
    torch.manual_seed(9)
    return nn.Sequential(nn.Linear(32, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8))


def flat(net):
    return torch.cat([p.data.flatten() for p in net.parameters()])


def load(net, vector):
    torch.nn.utils.vector_to_parameters(vector, net.parameters())


@torch.no_grad()
def play(net, seed, n, device):
    g = torch.Generator().manual_seed(seed)
    states = torch.randn(n, 32, generator=g).to(device)
    actions = torch.multinomial(net(states).softmax(-1), 1)
    rewards = (actions[:, 0] == states[:, :8].argmax(-1)).float()
    return states, actions, rewards


def learner(rank, group, world, net, device):
    optim = torch.optim.Adam(net.parameters(), 1e-3)
    for update in range(1, UPDATES + 1):
        experience = torch.empty(1024, 34)
        dist.recv(experience, src=rank + 2, group=world)
        states, actions, rewards = experience[:, :32].to(device), experience[:, 32].long().to(device), experience[:, 33].to(device)
        advantage = rewards - rewards.mean()
        loss = (nn.functional.cross_entropy(net(states), actions, reduction="none") * advantage).mean()
        optim.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, group=group)
            p.grad /= 2
        optim.step()
        if update % 10 == 0:
            mean = rewards.mean()
            dist.all_reduce(mean, group=group)
            if rank == 0:
                print(f"learner: update {update} reward {mean.item() / 2:.3f}", flush=True)
        if update % 5 == 0:
            dist.send(flat(net).cpu(), dst=rank + 2, group=world)
    dist.barrier(group=group)


def actor(rank, group, world, net, device):
    for update in range(1, UPDATES + 1):
        states, actions, rewards = play(net, update * 4 + rank, 1024, device)
        stats = torch.stack([rewards.mean(), rewards.var()])
        dist.all_reduce(stats, group=group)
        normal = rewards - stats[0] / 2
        dist.send(torch.cat([states, actions, normal[:, None]], 1).float().cpu(), dst=rank - 2, group=world)
        if update % 5 == 0:
            fresh = torch.empty(sum(p.numel() for p in net.parameters()))
            dist.recv(fresh, src=rank - 2, group=world)
            load(net, fresh.to(device))
        if update % 20 == 0 and rank == 2:
            print(f"actors: round {update} reward {stats[0].item() / 2:.3f}", flush=True)
    dist.barrier(group=group)


def main():
    rank = int(os.environ["RANK"])
    if CUDA:
        torch.cuda.set_device(rank % 2)
    device = torch.device("cuda", rank % 2) if CUDA else torch.device("cpu")
    dist.init_process_group("gloo", timeout=LIMIT)
    backend = "nccl" if CUDA else "gloo"
    learners = dist.new_group([0, 1], backend=backend, timeout=LIMIT, group_desc="learners")
    actors = dist.new_group([2, 3], backend=backend, timeout=LIMIT, group_desc="actors")
    net = policy().to(device)
    (learner if rank < 2 else actor)(rank, learners if rank < 2 else actors, dist.group.WORLD, net, device)
    print(f"rank {rank} ({'learner' if rank < 2 else 'actor'}) finished", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
