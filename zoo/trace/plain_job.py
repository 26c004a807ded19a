"""A DDP or FSDP2 job without a line of profiler code, for `ringleader trace record` and `ringleader watch --record-late`.

    KINETO_USE_DAEMON=1 torchrun --nproc-per-node 2 zoo/trace/plain_job.py ddp|fsdp SECONDS [--late host|compute --rank R --ms MS]

It prints a line every 50 steps: the mean step and the loss. Every `--phase` steps it starts anew from the same weights, with the
same data: the losses of all phases are equal to the bit, whether they are recorded or not.
"""

import argparse
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import models  # noqa: E402


def build(kind, device, width, layers, index):
    torch.manual_seed(0)
    with device:
        model = models.transformer(width, layers)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=index)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("kind", choices=["ddp", "fsdp"])
    a.add_argument("seconds", type=float)
    a.add_argument("--phase", type=int, default=10**9)
    a.add_argument("--late", choices=["host", "compute"])
    a.add_argument("--rank", type=int, default=0)
    a.add_argument("--ms", type=float, default=0)
    a = a.parse_args()
    rank = int(os.environ["RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    width, layers, n, length = (1536, 6, 8, 512) if cuda else (64, 2, 2, 16)
    is_late = a.late and rank == a.rank
    extra = torch.randn(4096 if cuda else 64, 4096 if cuda else 64, device=device) if is_late and a.late == "compute" else None
    state = build(a.kind, device, width, layers, [rank] if cuda else None)
    torch.manual_seed(1 + rank)
    x = torch.randn(n, length, width, device=device)
    go = os.environ.get("ZOO_GO")
    print("ready", flush=True)
    while go and not os.path.exists(go):
        time.sleep(0.05)
    begin = last = time.monotonic()
    step = 0
    while True:
        if step % a.phase == 0 and step:
            state = build(a.kind, device, width, layers, [rank] if cuda else None)
            last = time.monotonic()
        model, optimizer = state
        if is_late and a.late == "host":
            time.sleep(a.ms / 1e3)
        if extra is not None:
            # One product takes about half a millisecond on an H100: `ms` is a wish.
            for _ in range(int(2 * a.ms)):
                extra @ extra
        with sdpa_kernel(SDPBackend.MATH):
            loss = model(x).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 50 == 0:
            value = loss.item()
            now = time.monotonic()
            over = torch.tensor(float(now - begin > a.seconds), device=device)
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            print(f"rank {rank} at {time.time():.3f} step {step} of phase {step % a.phase or a.phase}: {(now - last) / 50 * 1e3:.3f} ms loss {value!r}", flush=True)
            last = now
            if over.item():
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
