"""One rank of a DDP job: prints the median time of a step in microseconds."""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(16)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(512, 2048, device="cuda")
    times = []
    for step in range(options.steps + 20):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= 20:
            times.append((time.perf_counter() - start) * 1e6)
    if dist.get_rank() == 0:
        print(statistics.median(times), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
