"""PyTorch under mpirun: rank and size come from Open MPI."""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def setup():
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    world = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=60))
    return rank, world, local


def read_shard(rank, step):
    g = torch.Generator().manual_seed(step * 17 + rank)
    return torch.randn(64, 1024, generator=g)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rank, world, local = setup()
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).to(device)
    model = DistributedDataParallel(model, device_ids=[local] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, steps + 1):
        x = read_shard(rank, step).to(device)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % 25 == 0:
            total = loss.detach().clone()
            dist.all_reduce(total)
            if rank == 0:
                print(f"step {step}: loss {total.item() / world:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} finished", flush=True)


if __name__ == "__main__":
    main()
