# Ising model on a large square lattice, checkerboard Metropolis, rows split over the GPUs (CuPy + cupyx.distributed)
# usage: ising.py --rank R --ranks N [--size L] [--beta B]
import argparse
import os
import time

import cupy as cp
import numpy as np
from cupyx.distributed import init_process_group

METROPOLIS = cp.RawKernel(r"""
extern "C" __global__
void metropolis(signed char* s, const float* u, long long rows, long long cols, long long pitch, int colour, float beta)
{
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= rows * cols) return;
    long long i = k / cols + 1, j = k % cols;
    if (((i + j) & 1) != colour) return;
    long long left = (j + cols - 1) % cols, right = (j + 1) % cols;
    int around = s[(i - 1) * pitch + j] + s[(i + 1) * pitch + j] + s[i * pitch + left] + s[i * pitch + right];
    float cost = 2.0f * s[i * pitch + j] * around;
    if (cost <= 0.0f || u[k] < expf(-beta * cost)) s[i * pitch + j] = -s[i * pitch + j];
}
""", "metropolis")


class Lattice:
    def __init__(self, comm, rank, ranks, size, beta):
        self.comm, self.rank, self.ranks, self.cols, self.rows, self.beta = comm, rank, ranks, size, size // ranks, beta
        self.rng, self.done = cp.random.RandomState(40 + rank), 0
        self.s = cp.where(self.rng.random_sample((self.rows + 2, size)) < 0.8, 1, -1).astype(cp.int8)

    def exchange(self):
        """Rows at the border from the neighbours (periodic). Even ranks send first."""
        up, down = (self.rank - 1) % self.ranks, (self.rank + 1) % self.ranks
        for mine, to, theirs, source in ((self.s[1], up, self.s[-1], down), (self.s[-2], down, self.s[0], up)):
            if self.rank % 2 == 0:
                self.comm.send(mine, to)
                self.comm.recv(theirs, source)
            else:
                self.comm.recv(theirs, source)
                self.comm.send(mine, to)

    def sweep(self):
        n = self.rows * self.cols
        self.done += 1
        for colour in (0, 1):
            self.exchange()
            u = self.rng.random_sample(n, dtype=cp.float32)
            METROPOLIS(((n + 255) // 256,), (256,), (self.s, u, np.int64(self.rows), np.int64(self.cols), np.int64(self.cols), np.int32(colour), np.float32(self.beta)))

    def observe(self):
        """Magnetisation and energy per spin of the whole lattice."""
        inner = self.s[1:-1].astype(cp.float32)
        mine = cp.stack([inner.sum(dtype=cp.float64), -(inner * self.s[2:]).sum(dtype=cp.float64) - (inner * cp.roll(inner, 1, 1)).sum(dtype=cp.float64)])
        whole = cp.zeros_like(mine)
        self.comm.all_reduce(mine, whole)
        return (whole / (self.cols * self.rows * self.ranks)).get()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rank", type=int, required=True)
    ap.add_argument("--ranks", type=int, default=2)
    ap.add_argument("--size", type=int, default=16384)
    ap.add_argument("--beta", type=float, default=0.45)
    ap.add_argument("--sweeps", type=int, default=10, help="between two measurements")
    ap.add_argument("--minutes", type=float, default=1.2)
    ap.add_argument("--save", type=int, default=100, help="measurements between two snapshots")
    a = ap.parse_args()
    cp.cuda.Device(int(os.environ.get("LOCAL_RANK", a.rank))).use()
    print(f"{a.rank}/{a.ranks} starts on device {cp.cuda.Device().id}", flush=True)
    comm = init_process_group(a.ranks, a.rank)
    lattice, t0, history = Lattice(comm, a.rank, a.ranks, a.size, a.beta), time.time(), []
    print(f"{a.rank}/{a.ranks} has {lattice.rows} rows of {a.size} spins", flush=True)
    measure = 0
    while True:
        measure += 1
        for _ in range(a.sweeps):
            lattice.sweep()
        m, e = lattice.observe()
        history.append((m, e))
        if a.rank == 0 and (measure < 4 or measure % 20 == 0):
            print(f"measurement {measure}: m = {m:+.5f}, e = {e:+.5f}, {measure * a.sweeps / (time.time() - t0):.1f} sweeps/s, {time.time() - t0:.1f} s", flush=True)
        if measure % a.save == 0:
            np.save(f"spins-{a.rank}.npy", lattice.s[1:-1].get())
            if a.rank == 0:
                np.savetxt("history.txt", history)
                print(f"measurement {measure}: snapshot", flush=True)
            comm.barrier()
        if measure % 10 == 0:
            over = cp.array([time.time() - t0 > 60 * a.minutes], dtype=cp.int32)
            comm.broadcast(over, 0)
            if int(over[0]):
                break
    print(f"{a.rank}/{a.ranks} ends, mean m = {np.mean([m for m, _ in history]):+.5f}", flush=True)


if __name__ == "__main__":
    main()
