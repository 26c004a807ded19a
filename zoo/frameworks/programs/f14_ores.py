#!/usr/bin/env python3
"""Kriging: how much ore is in a block of rock? Solves (K + nugget) a = y for many realizations at once with conjugate gradients; the rows of the covariance K are
split over the processes. CuPy with its binding of NCCL.

    krige.py --rank R --ranks N
"""
import argparse
import os
import pickle
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl


class Crew:
    """NCCL among the processes; its number goes through a file in the folder of the job."""

    def __init__(self, rank, ranks, path):
        self.rank, self.ranks = rank, ranks
        if rank == 0:
            number = nccl.get_unique_id()
            with open(path + ".new", "wb") as file:
                pickle.dump(number, file)
            os.replace(path + ".new", path)
        else:
            number = self.wait(path)
        self.nccl = nccl.NcclCommunicator(ranks, number, rank)

    @staticmethod
    def wait(path):
        for _ in range(3000):
            if os.path.exists(path):
                with open(path, "rb") as file:
                    return pickle.load(file)
            time.sleep(0.1)
        raise TimeoutError(f"no {path}")

    @staticmethod
    def stream():
        return cp.cuda.get_current_stream().ptr

    def add(self, x):
        self.nccl.allReduce(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, self.stream())
        return x

    def add_at(self, x, root):
        self.nccl.reduce(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, root, self.stream())
        return x

    def join(self, part, whole):
        self.nccl.allGather(part.data.ptr, whole.data.ptr, part.size, nccl.NCCL_FLOAT32, self.stream())
        return whole

    def tell(self, x):
        self.nccl.bcast(x.data.ptr, x.size, nccl.NCCL_FLOAT32, 0, self.stream())
        return x


class Deposit:
    """Cells of a deposit, and what the drill found in some realizations of it. This process knows its own cells' grades."""

    def __init__(self, cells, cases, rank, ranks):
        everywhere = np.random.default_rng(2).random((cells, 3), dtype=np.float32)
        self.places, self.cases = everywhere, cases
        count = cells // ranks
        self.own = everywhere[rank * count:(rank + 1) * count]
        self.shared, self.noise = np.random.default_rng(3), np.random.default_rng([4, rank])

    def drill(self):
        waves = self.shared.normal(0, 4, (3, self.cases)).astype(np.float32)
        grades = np.sin(self.own @ waves) + np.float32(0.1) * self.noise.standard_normal((len(self.own), self.cases), dtype=np.float32)
        return grades.astype(np.float32)


def settle(folder):
    """Takes a scratch folder; a process that has it leaves its mark there."""
    mark = folder + ".lock"
    while os.path.exists(mark):
        time.sleep(1)
    os.makedirs(folder, exist_ok=True)
    with open(mark, "w") as file:
        file.write(str(os.getpid()))
    return mark


class Kriging:
    def __init__(self, o, crew, deposit):
        self.o, self.crew, self.deposit = o, crew, deposit
        self.scale = crew.tell(cp.asarray([0.3 if crew.rank == 0 else 0.0], cp.float32))
        self.k = self.covariance()
        self.whole = cp.empty((len(deposit.places), o.cases), cp.float32)
        self.began = time.time()

    def covariance(self):
        far, near = cp.asarray(self.deposit.places), cp.asarray(self.deposit.own)
        k = cp.empty((len(near), len(far)), cp.float32)
        for start in range(0, len(near), 1000):
            some = near[start:start + 1000]
            square = (some ** 2).sum(1)[:, None] + (far ** 2).sum(1)[None] - 2 * some @ far.T
            k[start:start + 1000] = cp.exp(-cp.sqrt(cp.maximum(square, 0)) / self.scale)
        return k

    def times(self, p):
        return self.k @ self.crew.join(p, self.whole) + cp.float32(self.o.nugget) * p

    def dots(self, a, b):
        """Products of the columns, over all cells."""
        return self.crew.add((a * b).sum(0))

    def solve(self, grades):
        x, r = cp.zeros_like(grades), grades.copy()
        p, rest = r.copy(), self.dots(r, r)
        first = rest.copy()
        for turn in range(self.o.turns):
            q = self.times(p)
            pace = rest / self.dots(p, q)
            x += pace * p
            r -= pace * q
            left = self.dots(r, r)
            if float((left / first).max()) < self.o.close ** 2:
                break
            p = r + (left / rest) * p
            rest = left
        return x, float(cp.sqrt((left / first).mean())), turn + 1

    def over(self):
        late = cp.asarray([float(time.time() - self.began > 60 * self.o.minutes)], cp.float32)
        return float(self.crew.tell(late)[0]) > 0


def survey(o, kriging, rank):
    number = 0
    while True:
        number += 1
        grades = cp.asarray(kriging.deposit.drill())
        weights, left, turns = kriging.solve(grades)
        if number % o.tell_every == 0:
            ton = kriging.crew.add_at(cp.abs(weights).mean(0), 0)
            if rank == 0:
                print(f"round {number} residual {left:.3e} after {turns} turns, mean weight {float(ton.mean()) / kriging.crew.ranks:.4f}, {time.time() - kriging.began:.1f} s", flush=True)
        if number % o.keep_every == 0:
            np.save(f"weights-{rank}.npy", weights[:, :8].get())
            if rank == 0:
                print(f"round {number} kept", flush=True)
        if number % 20 == 0 and kriging.over():
            return number


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--ranks", type=int, default=2)
    for name, value in dict(cells=16000, cases=128, turns=24, tell_every=5, keep_every=200).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--nugget", type=float, default=0.1)
    p.add_argument("--close", type=float, default=1e-6)
    p.add_argument("--minutes", type=float, default=2.2)
    o = p.parse_args()
    device = cp.cuda.Device(int(os.environ.get("LOCAL_RANK", o.rank)))
    device.use()
    print(f"process {o.rank} of {o.ranks}: GPU {device.id}, CuPy {cp.__version__}, NCCL {nccl.get_version()}", flush=True)
    crew = Crew(o.rank, o.ranks, "crew.id")
    mark = settle(f"scratch-{o.rank}")
    kriging = Kriging(o, crew, Deposit(o.cells, o.cases, o.rank, o.ranks))
    print(f"process {o.rank}: {len(kriging.k)} of {o.cells} cells, {o.cases} realizations", flush=True)
    rounds = survey(o, kriging, o.rank)
    device.synchronize()
    os.unlink(mark)
    print(f"process {o.rank}: end, {rounds} rounds", flush=True)


if __name__ == "__main__":
    main()
