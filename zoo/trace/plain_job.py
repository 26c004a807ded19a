"""A DDP or FSDP2 job without a line of profiler code, for `ringleader trace record`: prints its step time every 50 steps.

    KINETO_USE_DAEMON=1 torchrun --nproc-per-node 2 zoo/trace/plain_job.py [ddp|fsdp] SECONDS
"""

import os
import sys
import time

import torch
import torch.distributed as dist

import models


def main(kind, seconds):
    rank = int(os.environ["RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    torch.manual_seed(0)
    model = models.transformer(2048 if cuda else 64, 6 if cuda else 2).to(device)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(24 if cuda else 2, 512 if cuda else 16, 2048 if cuda else 64, device=device)
    begin = last = time.monotonic()
    step = 0
    while True:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 50 == 0:
            value = loss.item()
            now = time.monotonic()
            over = torch.tensor(float(now - begin > seconds), device=device)
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if rank == 0:
                print(f"step {step} {(now - last) / 50 * 1e3:.2f} ms loss {value:.6f}", flush=True)
            last = now
            if over.item():
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ddp", float(sys.argv[2]) if len(sys.argv) > 2 else 60)
