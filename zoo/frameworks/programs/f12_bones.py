#!/usr/bin/env python3
# Computed tomography of bones: iterative reconstruction (SIRT). Every process has a part of the views and the whole volume; corrections
# are summed with NCCL. CuPy and its NCCL binding.     recon.py --rank R --world N --port P
import argparse
import os
import pickle
import socket
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl

CODE = r"""
extern "C" __global__ void project(const float* volume, const float* cosine, const float* sine, float* rays, int n, int views, int slices)
{
    int u = blockIdx.x * blockDim.x + threadIdx.x, view = blockIdx.y, z = blockIdx.z;
    if (u >= n) return;
    float c = cosine[view], s = sine[view], half = 0.5f * n, sum = 0.0f;
    const float* slice = volume + (size_t) z * n * n;
    for (int t = 0; t < n; ++t) {
        float x = (u - half) * c - (t - half) * s + half, y = (u - half) * s + (t - half) * c + half;
        int i = (int) floorf(x), j = (int) floorf(y);
        if (i < 0 || j < 0 || i >= n - 1 || j >= n - 1) continue;
        float a = x - i, b = y - j;
        const float* p = slice + (size_t) j * n + i;
        sum += (1 - b) * ((1 - a) * p[0] + a * p[1]) + b * ((1 - a) * p[n] + a * p[n + 1]);
    }
    rays[((size_t) z * views + view) * n + u] = sum;
}

extern "C" __global__ void back(const float* rays, const float* cosine, const float* sine, float* volume, int n, int views, int slices)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x >= n) return;
    float half = 0.5f * n, sum = 0.0f;
    for (int view = 0; view < views; ++view) {
        float u = (x - half) * cosine[view] + (y - half) * sine[view] + half;
        int i = (int) floorf(u);
        if (i < 0 || i >= n - 1) continue;
        float a = u - i;
        const float* p = rays + ((size_t) z * views + view) * n + i;
        sum += (1 - a) * p[0] + a * p[1];
    }
    volume[((size_t) z * n + y) * n + x] = sum;
}
"""
MODULE = cp.RawModule(code=CODE, options=("--use_fast_math",))
PROJECT, BACK = MODULE.get_function("project"), MODULE.get_function("back")


class Ring:
    """A communicator; the first process hands the id out over a socket."""

    def __init__(self, rank, world, port):
        self.rank, self.world = rank, world
        if rank == 0:
            number = nccl.get_unique_id()
            with socket.create_server(("127.0.0.1", port)) as server:
                server.settimeout(300)
                for _ in range(world - 1):
                    peer, _ = server.accept()
                    with peer:
                        peer.sendall(pickle.dumps(number))
        else:
            number = self.fetch(port)
        self.comm = nccl.NcclCommunicator(world, number, rank)

    @staticmethod
    def fetch(port):
        until = time.time() + 300
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
                    return pickle.load(s.makefile("rb"))
            except (OSError, EOFError):
                if time.time() > until:
                    raise
                time.sleep(0.3)

    def sum(self, x, op=nccl.NCCL_SUM):
        kind = nccl.NCCL_FLOAT64 if x.dtype == cp.float64 else nccl.NCCL_FLOAT32
        self.comm.allReduce(x.data.ptr, x.data.ptr, x.size, kind, op, cp.cuda.get_current_stream().ptr)
        return x

    def from_first(self, x):
        self.comm.bcast(x.data.ptr, x.size, nccl.NCCL_FLOAT32, 0, cp.cuda.get_current_stream().ptr)
        return x


class Scanner:
    """The views of this process: every world-th angle."""

    def __init__(self, o, rank, world):
        angles = np.pi * np.arange(rank, o.views, world) / o.views
        self.n, self.slices, self.views = o.edge, o.slices, len(angles)
        self.cosine, self.sine = cp.asarray(np.cos(angles), cp.float32), cp.asarray(np.sin(angles), cp.float32)

    def project(self, volume):
        rays = cp.empty((self.slices, self.views, self.n), cp.float32)
        sizes = np.int32(self.n), np.int32(self.views), np.int32(self.slices)
        PROJECT(((self.n + 127) // 128, self.views, self.slices), (128,), (volume, self.cosine, self.sine, rays, *sizes))
        return rays

    def back(self, rays):
        volume = cp.empty((self.slices, self.n, self.n), cp.float32)
        sizes = np.int32(self.n), np.int32(self.views), np.int32(self.slices)
        BACK(((self.n + 127) // 128, self.n, self.slices), (128,), (rays, self.cosine, self.sine, volume, *sizes))
        return volume


def phantom(o):
    """A shaft with a hollow, and some trabeculae."""
    rng = np.random.default_rng(13)
    y, x = np.mgrid[0:o.edge, 0:o.edge].astype(np.float32) / o.edge - 0.5
    bone = ((x * x + y * y < 0.13) & (x * x + 1.3 * y * y > 0.06)).astype(np.float32)
    out = np.repeat(bone[None], o.slices, 0)
    for _ in range(60):
        cy, cx, r = rng.uniform(-0.2, 0.2), rng.uniform(-0.2, 0.2), rng.uniform(0.004, 0.02)
        first = int(rng.integers(0, o.slices))
        out[first:first + o.slices // 3, (x - cx) ** 2 + (y - cy) ** 2 < r * r] = 0.7
    return out


class Reconstruction:
    def __init__(self, o, ring):
        self.o, self.ring, self.scanner = o, ring, Scanner(o, ring.rank, ring.world)
        self.truth = cp.asarray(phantom(o))
        ring.from_first(self.truth)
        self.measured = self.scanner.project(self.truth)
        noise = cp.random.RandomState(40 + ring.rank)
        self.measured += noise.standard_normal(self.measured.shape, dtype=cp.float32) * np.float32(0.2)
        self.volume = cp.zeros_like(self.truth)
        ones = cp.ones_like(self.truth)
        self.rows = 1 / cp.maximum(self.scanner.project(ones), 1)
        self.columns = 1 / cp.maximum(ring.sum(self.scanner.back(cp.ones_like(self.measured))), 1)
        self.began = time.time()

    def iterate(self):
        """One correction of the volume; the squared residual of all views."""
        difference = self.measured - self.scanner.project(self.volume)
        residual = (difference.astype(cp.float64) ** 2).sum().reshape(1)
        correction = self.scanner.back(difference * self.rows)
        self.ring.sum(correction)
        self.volume += np.float32(self.o.relax) * correction * self.columns
        cp.maximum(self.volume, 0, out=self.volume)
        self.ring.sum(residual)
        return float(residual[0])

    def quality(self):
        """Error of each process's slices, against the truth."""
        mine = slice(self.ring.rank, None, self.ring.world)
        parts = cp.zeros(self.o.slices, cp.float64)
        parts[mine] = ((self.volume[mine] - self.truth[mine]) ** 2).mean((1, 2))
        return self.ring.sum(parts).get()

    def over(self):
        late = cp.asarray([time.time() - self.began > 60 * self.o.minutes], cp.float32)
        return float(self.ring.from_first(late)[0]) > 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--edge", type=int, default=512)
    p.add_argument("--slices", type=int, default=48)
    p.add_argument("--views", type=int, default=480)
    p.add_argument("--relax", type=float, default=0.9)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--check-every", type=int, default=50)
    p.add_argument("--keep-every", type=int, default=400)
    p.add_argument("--minutes", type=float, default=1.4)
    o = p.parse_args()
    cp.cuda.Device(int(os.environ.get("LOCAL_RANK", 0))).use()
    print(f"process {o.rank}: GPU {cp.cuda.Device().id}, CuPy {cp.__version__}, NCCL {nccl.get_version()}", flush=True)
    ring = Ring(o.rank, o.world, o.port)
    work = Reconstruction(o, ring)
    print(f"process {o.rank}: {work.scanner.views} of {o.views} views, {o.slices} slices of {o.edge} x {o.edge}", flush=True)
    number = 0
    while True:
        number += 1
        residual = work.iterate()
        if number % o.log_every == 0 and o.rank == 0:
            print(f"iteration {number} residual {residual ** 0.5:.2f} after {time.time() - work.began:.1f} s", flush=True)
        if number % o.check_every == 0:
            errors = work.quality()
            if o.rank == 0:
                print(f"iteration {number} error {errors.mean() ** 0.5:.4f}, worst slice {errors.argmax()}", flush=True)
        if number % o.keep_every == 0:
            if o.rank == 0:
                np.save("volume.npy", work.volume.get())
                print(f"iteration {number} kept", flush=True)
        if number % 20 == 0 and work.over():
            break
    cp.cuda.Device().synchronize()
    print(f"process {o.rank}: end, {number} iterations", flush=True)


if __name__ == "__main__":
    main()
