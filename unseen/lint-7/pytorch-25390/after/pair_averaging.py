import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

from worker import LocalTrainer


def draw_pairs(round_number, world):
    order = torch.randperm(world, generator=torch.Generator().manual_seed(round_number))
    return order.view(-1, 2).tolist()


def my_pair_group(round_number):
    rank = dist.get_rank()
    pairs = draw_pairs(round_number, dist.get_world_size())
    mine = None
    for pair in pairs:
        group = dist.new_group(pair, timeout=timedelta(seconds=120))
        if rank in pair:
            mine = group
    return mine


def average(model, group):
    flat = torch.cat([p.data.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat, group=group)
    flat.div_(2)
    offset = 0
    for p in model.parameters():
        p.data.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--local-steps", type=int, default=50)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    trainer = LocalTrainer(seed=dist.get_rank())
    for number in range(args.rounds):
        loss = trainer.run(args.local_steps)
        group = my_pair_group(number)
        average(trainer.model, group)
        dist.destroy_process_group(group)
        if dist.get_rank() == 0:
            print(f"round {number}: {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
