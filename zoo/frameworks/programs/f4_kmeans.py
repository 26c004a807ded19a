"""k-means with CuPy: every process has its part of the points, the sums go over cupyx.distributed."""
import argparse
import os
import time

import cupy as cp
import numpy as np
from cupyx import distributed


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--size", type=int, default=2)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=13333)
    p.add_argument("--points", type=int, default=2400000)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--clusters", type=int, default=512)
    p.add_argument("--iterations", type=int, default=400)
    p.add_argument("--report", type=int, default=20)
    p.add_argument("--snapshot", type=int, default=100)
    p.add_argument("--tolerance", type=float, default=0.0)
    return p.parse_args()


class Points:
    """The own part of the points; distances are computed in chunks."""

    chunk = 200000

    def __init__(self, a):
        rng = cp.random.RandomState(1000 + a.rank)
        centres = cp.random.RandomState(7).standard_normal((a.clusters, a.dim), dtype=cp.float32) * 3
        own = a.points // a.size
        label = rng.randint(0, a.clusters, own)
        self.x = centres[label] + rng.standard_normal((own, a.dim), dtype=cp.float32)
        self.norm = (self.x**2).sum(1)

    def __len__(self):
        return len(self.x)

    def assign(self, centres):
        labels, inertia, length = [], cp.zeros((), cp.float64), (centres**2).sum(1)[None]
        for at in range(0, len(self), self.chunk):
            distance = self.norm[at:at + self.chunk, None] - 2 * self.x[at:at + self.chunk] @ centres.T + length
            labels.append(distance.argmin(1))
            inertia += distance.min(1).sum(dtype=cp.float64)
        return cp.concatenate(labels), inertia

    def sums(self, label, clusters):
        total = cp.zeros((clusters, self.x.shape[1]), cp.float32)
        cp.add.at(total, label, self.x)
        return total, cp.bincount(label, minlength=clusters).astype(cp.float32)


def say(a, text):
    print(f"[{time.strftime('%H:%M:%S')}] rank {a.rank}: {text}", flush=True)


def cluster(a, comm):
    points = Points(a)
    say(a, f"{len(points)} points on device {cp.cuda.runtime.getDevice()}")
    centres = points.x[:a.clusters].copy()
    comm.broadcast(centres, 0)
    before, began = None, time.time()
    for iteration in range(1, a.iterations + 1):
        label, inertia = points.assign(centres)
        total, count = points.sums(label, a.clusters)
        comm.all_reduce(total, total)
        comm.all_reduce(count, count)
        inertia = inertia.reshape(1)
        comm.all_reduce(inertia, inertia)
        centres = cp.where(count[:, None] > 0, total / cp.maximum(count, 1)[:, None], centres)
        value = float(inertia[0]) / a.points
        if iteration == 1 or iteration % a.report == 0:
            say(a, f"iteration {iteration} inertia {value:.5f} empty {int((count == 0).sum())} after {time.time() - began:.1f} s")
        if iteration % a.snapshot == 0 and a.rank == 0:
            np.save(f"centres-{iteration}.npy", cp.asnumpy(centres))
        if before is not None and abs(before - value) < a.tolerance:
            break
        before = value
    say(a, f"finished after {iteration} iterations")


def main():
    a = parse()
    cp.cuda.Device(a.rank).use()
    say(a, f"pid {os.getpid()}, joining {a.size} processes at {a.host}:{a.port}")
    comm = distributed.init_process_group(a.size, a.rank, host=a.host, port=a.port)
    cluster(a, comm)
    cp.cuda.Device().synchronize()


if __name__ == "__main__":
    main()
