import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from batches import PackedBatches


def setup_loader(dataset, world_size, rank, max_len):
    sampler = PackedBatches(dataset.lengths, max_len, num_replicas=world_size, rank=rank)
    return DataLoader(dataset, batch_sampler=sampler, num_workers=8, pin_memory=True)


def main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    model = fully_shard(args.build_model().cuda())
    loader = setup_loader(args.dataset, world_size, rank, args.max_len)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step, batch in enumerate(loader):
        loss = model(**{k: v.cuda(non_blocking=True) for k, v in batch.items()})
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 10 == 0:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(argparse.Namespace())
