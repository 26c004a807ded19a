"""Plants for more than two ranks: one rank among several is late, or one link is slow.

Rows are as in `plants.py`, models as in `other_plants.py`. They were committed before they were recorded.
"""

import os
import time

import torch
import torch.distributed as dist

from other_plants import add, averages_weights, language, writes_a_log
from plants import SLOW


def bandwidth(r):
    """Bus bandwidth of an all_reduce of 256 MiB at this moment, GB/s: how slow the link really makes it."""
    if not r.cuda:
        return None
    x = torch.ones(64 << 20, device=r.device)
    for n in range(7):
        if n == 2:
            torch.cuda.synchronize()
            begin = time.monotonic()
        dist.all_reduce(x)
    torch.cuda.synchronize()
    return x.numel() * 4 * 2 * (r.world - 1) / r.world * 5 / (time.monotonic() - begin) / 1e9


def told(build, before=None):
    def built(r):
        if before:
            before(r)
        reached = bandwidth(r)
        if r.rank == 0 and reached:
            print(f"all_reduce of 256 MiB: {reached:.1f} GB/s", flush=True)
        return build(r)

    return built


def copier(r):
    """`copier.py`, which waits in a process of its own, copies between two GPUs until the plant ends."""
    go = os.environ.get("ZOO_COPIER")
    if not r.cuda:
        return
    if not go:
        raise RuntimeError("ZOO_COPIER names no file: start copier.py first")
    if r.rank == 0:
        open(go, "w").close()
        r.at_end.append(lambda: os.remove(go))
        until = time.monotonic() + 20
        while not os.path.exists(go + ".on"):
            if time.monotonic() > until:
                raise RuntimeError("nobody copies")
            time.sleep(0.02)
    dist.barrier()


add("d-control", told(language()), steps=3)
add("d-compute-straggler", averages_weights(2), cause="straggler", also=("load-imbalance",), culprit=(2,), control="d-control", steps=3)
add("d-host-straggler", language(writes_a_log(3, 6_000)), cause="straggler", culprit=(3,), control="d-control", steps=3)
add("d-slow-link", told(language(), copier), cause="bandwidth-below-expected", also=SLOW, control="d-control", steps=3)

# Two halves that NCCL connects by sockets: with the settings of `four_gpus.py`.
add("d-sockets", told(language(dim=768)), cause="bandwidth-below-expected", also=SLOW, steps=3)
