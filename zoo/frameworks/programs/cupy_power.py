"""Largest eigenvalue of a matrix whose rows are spread over the GPUs."""
import argparse
import os
import pickle
import time

import cupy
from cupy.cuda import nccl

FLOAT, DOUBLE, SUM = nccl.NCCL_FLOAT32, nccl.NCCL_FLOAT64, nccl.NCCL_SUM


def exchange_id(path, rank, patience):
    if rank == 0:
        with open(path + ".tmp", "wb") as file:
            pickle.dump(nccl.get_unique_id(), file)
        os.rename(path + ".tmp", path)
    until = time.time() + patience
    while not os.path.exists(path):
        if time.time() > until:
            raise TimeoutError(f"rank {rank}: no {path} after {patience} s")
        time.sleep(0.1)
    with open(path, "rb") as file:
        return pickle.load(file)


class Comm:
    def __init__(self, size, rank, path, patience):
        self.size, self.rank = size, rank
        self.comm = nccl.NcclCommunicator(size, exchange_id(path, rank, patience), rank)
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def gather(self, part, whole):
        cupy.cuda.get_current_stream().synchronize()
        self.comm.allGather(part.data.ptr, whole.data.ptr, part.size, FLOAT, self.stream.ptr)
        self.stream.synchronize()

    def total(self, value):
        cupy.cuda.get_current_stream().synchronize()
        self.comm.allReduce(value.data.ptr, value.data.ptr, value.size, DOUBLE, SUM, self.stream.ptr)
        self.stream.synchronize()
        return value

    def ring(self, out, into):
        cupy.cuda.get_current_stream().synchronize()
        nccl.groupStart()
        self.comm.send(out.data.ptr, out.size, FLOAT, (self.rank + 1) % self.size, self.stream.ptr)
        self.comm.recv(into.data.ptr, into.size, FLOAT, (self.rank - 1) % self.size, self.stream.ptr)
        nccl.groupEnd()
        self.stream.synchronize()


def rows(n, rank, size):
    rng = cupy.random.RandomState(rank)
    block = rng.standard_normal((n // size, n), dtype=cupy.float32) / n**0.5
    block[:, :] += 2.0 / n
    return block


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, default=int(os.environ.get("RANK", 0)))
    p.add_argument("--size", type=int, default=2)
    p.add_argument("--n", type=int, default=8192)
    p.add_argument("--iterations", type=int, default=600)
    p.add_argument("--id-file", default="nccl.id")
    p.add_argument("--patience", type=float, default=60)
    a = p.parse_args()
    cupy.cuda.Device(a.rank).use()
    comm = Comm(a.size, a.rank, a.id_file, a.patience)
    print(f"rank {a.rank}/{a.size} on GPU {cupy.cuda.Device().id}, NCCL {nccl.get_version()}", flush=True)
    block = rows(a.n, a.rank, a.size)
    vector = cupy.ones(a.n, dtype=cupy.float32) / a.n**0.5
    halo = cupy.empty(1024, dtype=cupy.float32)
    for k in range(1, a.iterations + 1):
        part = block @ vector
        square = comm.total((part.astype(cupy.float64) ** 2).sum().reshape(1))
        norm = float(square[0]) ** 0.5
        comm.gather(part / cupy.float32(norm), vector)
        if k % 10 == 0:
            comm.ring(part[:1024].copy(), halo)
        if k % 100 == 0:
            print(f"rank {a.rank} iteration {k}: eigenvalue {norm:.6f}", flush=True)
            cupy.save(f"part{a.rank}.npy", part)
    print(f"rank {a.rank} converged to {norm:.6f}", flush=True)


if __name__ == "__main__":
    main()
