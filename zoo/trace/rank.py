"""A rank that runs plants one after the other: warm-up, a timed phase without a profiler, then a recorded phase.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 rank.py OUT NAME...
"""

import gc
import gzip
import json
import os
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

import fourth_plants  # noqa: F401
import other_plants  # noqa: F401 (its rows join those of plants)
import plants
import third_plants  # noqa: F401
import wide_plants  # noqa: F401

WARM_UP, TIMED = 3, 6


class Rank:
    """Everything that a plant may use."""

    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", self.rank % torch.cuda.device_count()) if self.cuda else torch.device("cpu")
        self.keep, self.at_end, self.log, self.extra = [], [], None, None

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def clear(self):
        for end in self.at_end:
            end()
        self.keep, self.at_end, self.log, self.extra = [], [], None, None


def run(r, name, out):
    plant = plants.PLANTS[name]
    step = plant.build(r)
    for n in range(WARM_UP):
        step(n)
    r.synchronize()
    dist.barrier()
    begin = time.monotonic()
    for n in range(TIMED):
        step(n)
    r.synchronize()
    step_ms = (time.monotonic() - begin) / TIMED * 1e3
    kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if r.cuda else [])
    path = f"{out}/{name}/trace_rank{r.rank}.json"
    os.makedirs(f"{out}/{name}", exist_ok=True)
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=plant.steps) if plant.annotated else None
    dist.barrier()
    keep = (lambda done: done.export_chrome_trace(path)) if plant.annotated else None
    with torch.profiler.profile(activities=kinds, schedule=schedule, on_trace_ready=keep, with_stack=plant.stacks) as prof:
        begin = time.monotonic()
        for n in range(plant.steps + (2 if plant.annotated else 1)):
            step(n)
            if plant.annotated:
                prof.step()
        r.synchronize()
    profiled_ms = (time.monotonic() - begin) / (n + 1) * 1e3
    if not plant.annotated:
        prof.export_chrome_trace(path)
    if not os.environ.get("ZOO_UNPACKED"):
        with open(path, "rb") as plainly, gzip.open(path + ".gz", "wb", compresslevel=6) as packed:
            packed.write(plainly.read())
        os.remove(path)
    if r.rank == 0:
        row = {"cause": plant.cause, "also_right": plant.also, "culprit_ranks": plant.culprit, "control": plant.control,
               "step_ms": round(step_ms, 3), "profiled_ms": round(profiled_ms, 3), "settings": plants.settings_of(name)}
        with open(f"{out}/{name}/truth.json", "w") as file:
            json.dump(row, file, indent=1)
        print(name, json.dumps(row), flush=True)


def wait_for_go(r):
    """Starting takes long; `two_gpus.py` starts its processes early and lets them work one after the other."""
    go = os.environ.get("ZOO_GO")
    if not go:
        return
    dist.barrier()
    r.synchronize()
    print("ready", flush=True)
    while not os.path.exists(go):
        time.sleep(0.05)


def split_into_hosts(r):
    """With ZOO_HOSTS=N, NCCL takes the ranks for those of N hosts, and connects them by sockets."""
    hosts = int(os.environ.get("ZOO_HOSTS", "0"))
    if hosts:
        os.environ["NCCL_HOSTID"] = f"zoo-host-{r.rank * hosts // r.world}"


def main(out, names):
    r = Rank()
    split_into_hosts(r)
    torch.manual_seed(r.rank)
    if r.cuda:
        torch.cuda.set_device(r.device)
    dist.init_process_group("nccl" if r.cuda else "gloo", timeout=timedelta(seconds=60), device_id=r.device if r.cuda else None)
    wait_for_go(r)
    until = time.time() + float(os.environ.get("ZOO_BUDGET", "1e9"))
    for name in names:
        over = torch.tensor(float(time.time() > until), device=r.device)
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.item():
            print("no time left for", name, flush=True)
            continue
        begin = time.monotonic()
        try:
            run(r, name, out)
        except Exception:
            traceback.print_exc()
            print("failed:", name, flush=True)
        r.clear()
        gc.collect()
        if r.cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        dist.barrier()
        if r.rank == 0:
            print(f"  {name}: {time.monotonic() - begin:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
