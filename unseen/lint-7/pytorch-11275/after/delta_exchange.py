import argparse
import os

import torch
import torch.distributed as dist

from worker import LocalTrainer


def flatten(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def load_flat(model, flat):
    offset = 0
    for p in model.parameters():
        p.data.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def exchange(mine):
    """The parameters of every rank, by point-to-point messages."""
    rank, world = dist.get_rank(), dist.get_world_size()
    inbox = {rank: mine}
    for sender in range(world):
        if sender == rank:
            for peer in range(world):
                if peer != rank:
                    dist.send(mine, dst=peer)
        else:
            theirs = torch.empty_like(mine)
            dist.recv(theirs, src=sender)
            inbox[sender] = theirs
    return inbox


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--local-steps", type=int, default=200)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    trainer = LocalTrainer(seed=int(os.environ["RANK"]))
    for number in range(args.rounds):
        loss = trainer.run(args.local_steps)
        inbox = exchange(flatten(trainer.model))
        merged = torch.stack([inbox[r] for r in sorted(inbox)]).median(dim=0).values
        load_flat(trainer.model, merged)
        if dist.get_rank() == 0:
            print(f"round {number}: {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
