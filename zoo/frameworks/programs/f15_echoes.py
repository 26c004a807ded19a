#!/usr/bin/env python3
"""How does a hall sound? The wave equation on a grid, cut into slabs, one for each process; borders go to the neighbours. CuPy and its binding of NCCL.

    hall.py --rank R --ranks N
"""
import argparse
import os
import pickle
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl


class Ensemble:
    """NCCL among the processes; a file in the folder of the job carries its number."""

    def __init__(self, rank, ranks, path):
        self.rank, self.ranks = rank, ranks
        if rank == 0:
            number = nccl.get_unique_id()
            with open(path + ".part", "wb") as file:
                pickle.dump(number, file)
            os.replace(path + ".part", path)
        else:
            until = time.time() + 300
            while not os.path.exists(path):
                if time.time() > until:
                    raise TimeoutError(f"nobody wrote {path}")
                time.sleep(0.1)
            with open(path, "rb") as file:
                number = pickle.load(file)
        self.comm = nccl.NcclCommunicator(ranks, number, rank)

    @property
    def stream(self):
        return cp.cuda.get_current_stream().ptr

    def total(self, x):
        self.comm.allReduce(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, self.stream)
        return x

    def loudest(self, x):
        self.comm.allReduce(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_MAX, self.stream)
        return x

    def from_first(self, x):
        self.comm.bcast(x.data.ptr, x.size, nccl.NCCL_FLOAT32, 0, self.stream)
        return x

    def swap(self, field):
        """Gives the outer layers of a slab to the neighbours and takes theirs."""
        plane = field[0].size
        nccl.groupStart()
        if self.rank > 0:
            self.comm.send(field[1].data.ptr, plane, nccl.NCCL_FLOAT32, self.rank - 1, self.stream)
            self.comm.recv(field[0].data.ptr, plane, nccl.NCCL_FLOAT32, self.rank - 1, self.stream)
        if self.rank < self.ranks - 1:
            self.comm.send(field[-2].data.ptr, plane, nccl.NCCL_FLOAT32, self.rank + 1, self.stream)
            self.comm.recv(field[-1].data.ptr, plane, nccl.NCCL_FLOAT32, self.rank + 1, self.stream)
        nccl.groupEnd()


wave = cp.ElementwiseKernel("float32 now, float32 before, float32 around, float32 pace, float32 loss", "float32 after",
                            "after = (2.0f - loss) * now - (1.0f - loss) * before + pace * (around - 6.0f * now)", "wave")


def pulses(count, size):
    """The claps of all rounds: short noise that dies away."""
    rng = np.random.default_rng(6)
    fade = np.exp(-np.arange(size, dtype=np.float32) / np.float32(size / 6))
    return rng.standard_normal((count, size)).astype(np.float32) * fade


class Hall:
    def __init__(self, o, ensemble):
        self.o, self.ensemble, self.rank = o, ensemble, ensemble.rank
        shape = (o.slab + 2, o.edge, o.edge)
        self.now, self.before = cp.zeros(shape, cp.float32), cp.zeros(shape, cp.float32)
        self.claps = pulses(64, o.pulse)
        self.clap = cp.zeros(o.pulse, cp.float32)
        self.ears = cp.asarray(np.random.default_rng([9, self.rank]).integers(2, o.edge - 2, (128, 2)))
        self.heard = []
        self.pace, self.tick, self.began = 0.1, time.perf_counter(), time.time()

    def clock(self):
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def next_clap(self, number):
        """All processes need the clap; the first one has it."""
        if self.rank == 0:
            self.clap.set(self.claps[number % len(self.claps)])
        return self.ensemble.from_first(self.clap)

    def advance(self, push):
        self.ensemble.swap(self.now)
        n, inner = self.now, (slice(1, -1), slice(1, -1), slice(1, -1))
        around = n[2:, 1:-1, 1:-1] + n[:-2, 1:-1, 1:-1] + n[1:-1, 2:, 1:-1] + n[1:-1, :-2, 1:-1] + n[1:-1, 1:-1, 2:] + n[1:-1, 1:-1, :-2]
        after = cp.zeros_like(n)
        after[inner] = wave(n[inner], self.before[inner], around, np.float32(0.16), np.float32(self.o.loss))
        middle = self.o.edge // 2
        after[2, middle - 4:middle + 4, middle - 4:middle + 4] += push
        self.before, self.now = n, after

    def energy(self):
        """Of the whole hall."""
        own = cp.square(self.now[1:-1]).sum(dtype=cp.float32).reshape(1)
        return float(self.ensemble.total(own)[0])

    def round(self, number):
        clap = self.next_clap(number)
        for beat in range(self.o.beats):
            self.advance(clap[(number * self.o.beats + beat) % self.o.pulse])
        sound = self.now[self.o.slab // 2][self.ears[:, 0], self.ears[:, 1]]
        self.heard = (self.heard + [sound.get()])[-200:]
        return self.energy()

    def late(self):
        word = cp.asarray([float(time.time() - self.began > 60 * self.o.minutes)], cp.float32)
        return float(self.ensemble.loudest(word)[0]) > 0


def concert(o, hall):
    number = 0
    while True:
        number += 1
        energy = hall.round(number)
        hall.clock()
        if number % o.tell_every == 0:
            peak = float(hall.ensemble.loudest(cp.abs(hall.now).max().reshape(1))[0])
            if hall.rank == 0:
                print(f"round {number} energy {energy:.5e} peak {peak:.4f} {hall.pace:.3f} s a round", flush=True)
        if number % o.keep_every == 0:
            np.save(f"heard-{hall.rank}.npy", np.stack(hall.heard))
            if hall.rank == 0:
                print(f"round {number} kept", flush=True)
        if number % 20 == 0 and hall.late():
            return number


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--ranks", type=int, default=2)
    for name, value in dict(slab=96, edge=288, beats=8, pulse=512, tell_every=5, keep_every=100).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--loss", type=float, default=0.004)
    p.add_argument("--minutes", type=float, default=1.8)
    o = p.parse_args()
    device = cp.cuda.Device(int(os.environ.get("LOCAL_RANK", o.rank)))
    device.use()
    print(f"process {o.rank} of {o.ranks}: GPU {device.id}, CuPy {cp.__version__}, NCCL {nccl.get_version()}", flush=True)
    hall = Hall(o, Ensemble(o.rank, o.ranks, "ensemble.id"))
    print(f"process {o.rank}: slab of {o.slab} x {o.edge} x {o.edge} cells", flush=True)
    rounds = concert(o, hall)
    device.synchronize()
    print(f"process {o.rank}: end, {rounds} rounds", flush=True)


if __name__ == "__main__":
    main()
