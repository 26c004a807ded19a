#!/usr/bin/env python3
"""Which notes are in a perfume? Non-negative factors of mass spectra: X = W H, the rows of X and W are split over the processes, H is the same in
all of them. CuPy, sums over the processes with its binding of NCCL.

    notes.py --rank R --ranks N --port P
"""
import argparse
import os
import time
from multiprocessing.connection import Client, Listener

import cupy as cp
import numpy as np
from cupy.cuda import nccl

TINY = np.float32(1e-9)

multiply_update = cp.ElementwiseKernel("T up, T down, T tiny", "T x", "x = x * up / (down + tiny)", "multiply_update")


class Team:
    """NCCL among the processes. The first one tells the others the number of the communicator."""

    KINDS = {"f": nccl.NCCL_FLOAT32, "d": nccl.NCCL_FLOAT64}

    def __init__(self, rank, ranks, host, port):
        self.rank, self.ranks = rank, ranks
        number = self.tell(port) if rank == 0 else self.ask(host, port)
        self.nccl = nccl.NcclCommunicator(ranks, number, rank)

    def tell(self, port):
        number = nccl.get_unique_id()
        with Listener(("127.0.0.1", port)) as door:
            for _ in range(self.ranks - 1):
                with door.accept() as peer:
                    peer.send(number)
        return number

    @staticmethod
    def ask(host, port):
        for _ in range(600):
            try:
                with Client((host, port)) as door:
                    return door.recv()
            except (ConnectionRefusedError, EOFError):
                time.sleep(0.5)
        raise TimeoutError(f"no process 0 at {host}:{port}")

    @staticmethod
    def stream():
        return cp.cuda.get_current_stream().ptr

    def all_reduce(self, x):
        self.nccl.allReduce(x.data.ptr, x.data.ptr, x.size, self.KINDS[x.dtype.char], nccl.NCCL_SUM, self.stream())

    def reduce(self, x, out, root):
        self.nccl.reduce(x.data.ptr, out.data.ptr, x.size, self.KINDS[x.dtype.char], nccl.NCCL_SUM, root, self.stream())

    def broadcast(self, x, root):
        self.nccl.bcast(x.data.ptr, x.size, self.KINDS[x.dtype.char], root, self.stream())


class Spectra:
    """Perfumes of this process: mixtures of a few notes, each with its lines."""

    def __init__(self, rows, masses, notes, rank):
        self.rows, self.masses = rows, masses
        common = cp.random.RandomState(21)
        lines = common.random_sample((notes, masses), dtype=cp.float32) ** 12
        own = cp.random.RandomState(100 + rank)
        amounts = own.random_sample((rows, notes), dtype=cp.float32) ** 6
        self.x = amounts @ lines
        self.x += np.float32(0.01) * own.random_sample(self.x.shape, dtype=cp.float32)
        self.scale = float(cp.sqrt((self.x ** 2).mean()))
        self.x /= np.float32(self.scale)


class Factors:
    def __init__(self, o, comm, spectra):
        self.o, self.comm, self.spectra = o, comm, spectra
        own = cp.random.RandomState(7 + comm.rank)
        self.w = own.random_sample((spectra.rows, o.factors), dtype=cp.float32) * np.float32(0.1)
        self.h = cp.empty((o.factors, spectra.masses), cp.float32)
        if comm.rank == 0:
            self.h[...] = own.random_sample(self.h.shape, dtype=cp.float32) * np.float32(0.1)
        comm.broadcast(self.h, 0)
        self.norm = self.total((spectra.x ** 2).sum(dtype=cp.float64))
        self.began = time.time()

    def total(self, value):
        """Sum of a number over the processes."""
        value = cp.asarray(value, cp.float64).reshape(1)
        self.comm.all_reduce(value)
        return float(value[0])

    def update_w(self):
        multiply_update(self.spectra.x @ self.h.T, self.w @ (self.h @ self.h.T), TINY, self.w)

    def update_h(self):
        up, down = self.w.T @ self.spectra.x, self.w.T @ self.w
        self.comm.all_reduce(up)
        self.comm.all_reduce(down)
        multiply_update(up, down @ self.h, TINY, self.h)

    def round(self):
        for _ in range(self.o.inner):
            self.update_w()
        self.update_h()

    def missing(self):
        """The share of the spectra that the factors do not explain; by parts, to save memory."""
        square = cp.zeros((), cp.float64)
        for start in range(0, self.spectra.rows, 8192):
            part = slice(start, start + 8192)
            square += ((self.spectra.x[part] - self.w[part] @ self.h) ** 2).sum(dtype=cp.float64)
        return (self.total(square) / self.norm) ** 0.5

    def strongest(self):
        """Of each factor the heaviest line, on process 0."""
        sums = self.w.sum(0)
        out = cp.zeros_like(sums)
        self.comm.reduce(sums, out, 0)
        return cp.argsort(-out)[:5].get().tolist() if self.comm.rank == 0 else None

    def over(self):
        late = cp.asarray([time.time() - self.began > 60 * self.o.minutes], cp.float32)
        self.comm.broadcast(late, 0)
        return bool(late[0] > 0)


def fit(o, factors, rank):
    number = 0
    while True:
        number += 1
        factors.round()
        if number % o.log == 0:
            missing = factors.missing()
            if rank == 0:
                print(f"round {number} missing {missing:.5f} after {time.time() - factors.began:.1f} s", flush=True)
        cp.cuda.get_current_stream().synchronize()
        if number % o.notes_every == 0:
            names = factors.strongest()
            if rank == 0:
                print(f"round {number} strongest {names}", flush=True)
        if number % o.save_every == 0:
            np.save(f"w-{rank}.npy", factors.w[:2000].get())
            if rank == 0:
                np.save("h.npy", factors.h.get())
                print(f"round {number} saved", flush=True)
        if number % 20 == 0 and factors.over():
            return number


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, required=True)
    for name, value in dict(rows=60000, masses=4096, notes=200, factors=320, inner=4, log=5, notes_every=100, save_every=250).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--minutes", type=float, default=2.2)
    o = p.parse_args()
    device = cp.cuda.Device(int(os.environ.get("LOCAL_RANK", o.rank)))
    device.use()
    print(f"process {o.rank} of {o.ranks}: GPU {device.id}, CuPy {cp.__version__}, NCCL {nccl.get_version()}", flush=True)
    comm = Team(o.rank, o.ranks, o.host, o.port)
    spectra = Spectra(o.rows, o.masses, o.notes, o.rank)
    factors = Factors(o, comm, spectra)
    print(f"process {o.rank}: {spectra.rows} spectra of {spectra.masses} masses, {o.factors} factors", flush=True)
    rounds = fit(o, factors, o.rank)
    device.synchronize()
    print(f"process {o.rank}: end, {rounds} rounds", flush=True)


if __name__ == "__main__":
    main()
