#!/usr/bin/env python3
"""A small data-parallel training job whose loss is reproducible, with a fault planted once at a step.

    torchrun --nproc-per-node 2 zoo/run/train.py --dir D --steps 60 --save-every 10 --resume {checkpoint} --plan FILE

Random numbers depend only on the step, so a resumed run ends with the same loss as an uninterrupted one.
The plan (JSON) is {"fault": NAME, "rank": R, "step": S, "times": N}; each time the fault happens, it creates a file `struck-K`;
after N times it no longer happens. Rank 0 appends every step to D/steps.jsonl and the final loss to D/final.json.
"""

import argparse
import ctypes
import glob
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--step-ms", type=int, default=40)
    parser.add_argument("--resume", default=None)
    parser.add_argument("--plan", default=None)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--timeout", type=float, default=1800)
    args = parser.parse_args()
    plan = json.load(open(args.plan)) if args.plan and os.path.exists(args.plan) else {}
    rank = int(os.environ["RANK"])
    device = torch.device("cpu")
    if args.backend == "nccl":
        local = int(os.environ["LOCAL_RANK"])
        if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
            # NCCL refuses two ranks of one host on one GPU, so each rank says that it is a host.
            os.environ.setdefault("NCCL_HOSTID", f"zoo-host-{rank}")
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    from datetime import timedelta

    dist.init_process_group(args.backend, timeout=timedelta(seconds=args.timeout))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = 0
    if args.resume == "auto":
        # Like a program without a supervisor: takes the highest number, unchecked.
        saved = glob.glob(os.path.join(args.dir, "ckpt", "step_*.pt"))
        args.resume = max(saved, key=lambda path: int(path[:-3].rsplit("_", 1)[1]), default=None)
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
        if rank == 0:
            print(f"resumed from {args.resume} at step {begin}", flush=True)
    checkpoints = os.path.join(args.dir, "ckpt")
    os.makedirs(checkpoints, exist_ok=True)
    loss = torch.zeros(())
    for step in range(begin + 1, args.steps + 1):
        began = time.time()
        left_out = strike(plan, args, rank, step, device)
        generator = torch.Generator().manual_seed(step * 1000 + rank)
        x = torch.randn(32, 64, generator=generator).to(device)
        y = x[:, :8].sum(1, keepdim=True)
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        for n, parameter in enumerate(model.parameters()):
            if n != left_out:
                dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        if rank == 0:
            # Waits for the GPU: the step is done.
            value = loss.item()
            with open(os.path.join(args.dir, "steps.jsonl"), "a") as file:
                row = {"step": step, "at": time.time(), "generation": int(os.environ.get("RINGLEADER_GENERATION", "0"))}
                file.write(json.dumps(row) + "\n")
            print(f"step {step} loss {value:.6f}", flush=True)
        if step % args.save_every == 0 and rank == 0:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
                       os.path.join(checkpoints, f"step_{step}.pt"))
        time.sleep(max(0.0, args.step_ms / 1000 - (time.time() - began)))
    digest = sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
    if rank == 0:
        with open(os.path.join(args.dir, "final.json"), "w") as file:
            json.dump({"loss": loss.item(), "digest": digest}, file)
        print(f"training finished, loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


def strike(plan, args, rank, step, device):
    """Executes the plan at its step, as often as planned. Returns the number of the collective to leave out, if any."""
    if plan.get("rank") != rank or plan.get("step") != step:
        return None
    struck = [n for n in range(plan.get("times", 1)) if os.path.exists(os.path.join(args.dir, f"struck-{n}"))]
    if len(struck) >= plan.get("times", 1):
        return None
    with open(os.path.join(args.dir, f"struck-{len(struck)}"), "w") as file:
        file.write(str(time.time()))
    fault = plan["fault"]
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "torn":
        tear(args, step)
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "segfault":
        ctypes.string_at(0)
    elif fault == "abort":
        os.abort()
    elif fault == "exception":
        raise ValueError(f"batch of step {step} has no label")
    elif fault == "shape":
        # The others reduce the first gradient, which is larger.
        dist.all_reduce(torch.zeros(3, device=device))
    elif fault == "skip":
        return 0
    elif fault == "early-exit":
        os._exit(0)
    elif fault == "exit":
        sys.exit(3)
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "sleep":
        wait_for_the_loader()
    elif fault == "cuda-oom" and device.type == "cuda":
        torch.empty(1 << 42, dtype=torch.uint8, device=device)
    elif fault == "cuda-oom":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB")
    elif fault == "memory":
        eat()
    elif fault == "assert":
        look_up(device)
    elif fault == "illegal":
        scatter()
    elif fault == "disk":
        raise OSError(28, "No space left on device", "/data/ckpt/step.pt")
    else:
        raise SystemExit(f"no fault is called {fault}")
    return None


def tear(args, step):
    """Half a checkpoint, as after an interrupted save."""
    whole = glob.glob(os.path.join(args.dir, "ckpt", "step_*.pt"))
    data = open(whole[0], "rb").read() if whole else bytes(100_000)
    with open(os.path.join(args.dir, "ckpt", f"step_{step}.pt"), "wb") as file:
        file.write(data[:len(data) // 2])


def look_up(device):
    """An index beyond the table: the kernel's own check fails."""
    table = torch.zeros(16, device=device)
    return table[torch.tensor([3, 99], device=device)].sum().item()


def scatter():
    """A kernel writes to an unmapped address."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
    import gpu

    gpu.Kernels().launch("scatter", 0x1000)
    torch.cuda.synchronize()


def wait_for_the_loader():
    while True:
        time.sleep(1)


def eat():
    hold = []
    while True:
        hold.append(bytearray(64 << 20))


if __name__ == "__main__":
    main()
