"""One rank of a DDP job: prints `ddp VARIANT T1 T2 ...`, the mean time of a step in microseconds, one number per round.

With `switch.cc` as NCCL's profiler every round runs all of its variants, in the same order on all ranks. Otherwise there is
one variant, 0.
"""

import argparse
import ctypes
import os
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def switch():
    """`overhead_use` of the loaded profiler, if it is the switch."""
    path = os.environ.get("NCCL_PROFILER_PLUGIN", "")
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD).overhead_use if path else None
    except (OSError, AttributeError):
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(16)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(512, 2048, device="cuda")

    def steps(count):
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e6 / count

    steps(30)
    use = switch()
    variants = use(0) if use else 1
    times = [[] for _ in range(variants)]
    order = random.Random(1)
    for _ in range(options.rounds):
        for variant in order.sample(range(variants), variants):
            if use:
                time.sleep(0.002)
                use(variant)
            steps(2)
            times[variant].append(steps(options.steps))
    if dist.get_rank() == 0:
        for variant, rounds in enumerate(times):
            print("ddp", variant, *(f"{value:.3f}" for value in rounds), flush=True)
    if use:
        use(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
