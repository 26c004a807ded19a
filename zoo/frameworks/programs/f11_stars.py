# A star cluster: all pairs of stars attract each other. Every process moves its own stars, positions of all are gathered in each step.
# CuPy with cupyx.distributed (NCCL).  usage: nbody.py --rank R --size N [--stars S]
import argparse
import os
import time

import cupy as cp
import numpy as np
from cupyx.distributed import NCCLBackend

FORCES = cp.RawKernel(r"""
extern "C" __global__
void forces(const float4* mine, const float4* all, float4* out, int count, int others, int first, float soft)
{
    __shared__ float4 tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < count ? mine[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float ax = 0.0f, ay = 0.0f, az = 0.0f, potential = 0.0f;
    for (int start = first; start < first + others; start += 256) {
        tile[threadIdx.x] = all[start + threadIdx.x];
        __syncthreads();
        #pragma unroll 16
        for (int j = 0; j < 256; ++j) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + soft);
            float pull = tile[j].w * r * r * r;
            ax += pull * dx;
            ay += pull * dy;
            az += pull * dz;
            potential -= tile[j].w * r;
        }
        __syncthreads();
    }
    if (i < count) out[i] = make_float4(ax, ay, az, potential);
}
""", "forces", options=("--use_fast_math",))


class Cluster:
    def __init__(self, comm, rank, size, stars, soft):
        self.comm, self.rank, self.size, self.soft = comm, rank, size, soft
        self.count = stars // size // 256 * 256
        self.total = self.count * size
        rng = np.random.default_rng(90 + rank)
        radius = 1 / np.sqrt(rng.uniform(0.05, 0.99, (self.count, 1)) ** (-2 / 3) - 1 + 1e-3)
        place = rng.standard_normal((self.count, 3))
        place *= radius / np.linalg.norm(place, axis=1, keepdims=True)
        self.stars = cp.asarray(np.concatenate([place, np.full((self.count, 1), 1 / self.total)], 1).astype(np.float32))
        self.speed = cp.asarray(rng.normal(0, 0.35, (self.count, 3)).astype(np.float32))
        self.all = cp.empty((self.total, 4), cp.float32)
        self.pull = cp.zeros((self.count, 4), cp.float32)
        self.time = 0.0

    def attract(self):
        """Positions of all stars, then the forces on the own ones."""
        self.comm.all_gather(self.stars, self.all, self.stars.size)
        FORCES(((self.count + 255) // 256,), (256,), (self.stars, self.all, self.pull, np.int32(self.count), np.int32(self.total), np.int32(0), np.float32(self.soft)))

    def longest_step(self):
        """The same step for all: the star that feels most decides."""
        most = cp.sqrt((self.pull[:, :3] ** 2).sum(1).max()).reshape(1)
        self.comm.all_reduce(most, most, "max")
        return min(2e-3, 0.02 * (self.soft / float(most[0])) ** 0.5)

    def move(self, dt):
        self.speed += self.pull[:, :3] * np.float32(dt)
        self.stars[:, :3] += self.speed * np.float32(dt)
        self.time += dt

    def energy(self):
        mass = self.stars[:, 3].astype(cp.float64)
        mine = cp.stack([(mass * (self.speed.astype(cp.float64) ** 2).sum(1)).sum() / 2, (mass * self.pull[:, 3]).sum() / 2])
        whole = cp.zeros_like(mine)
        self.comm.all_reduce(mine, whole)
        return whole.get()

    def momentum(self):
        total = (self.stars[:, 3:] * self.speed).sum(0)
        self.comm.all_reduce(total, total)
        return total.get()


class Diary:
    """What the first process notes."""

    def __init__(self, rank):
        self.rank, self.began = rank, time.time()

    def __call__(self, text):
        if self.rank == 0:
            line = f"{time.time() - self.began:8.1f} s  {text}"
            print(line, flush=True)
            with open("diary.txt", "a") as file:
                file.write(line + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rank", type=int, required=True)
    ap.add_argument("--size", type=int, default=2)
    ap.add_argument("--stars", type=int, default=294912)
    ap.add_argument("--soft", type=float, default=1e-4)
    ap.add_argument("--port", type=int, required=True)
    ap.add_argument("--note", type=int, default=20, help="steps between two lines in the diary")
    ap.add_argument("--keep", type=int, default=400, help="steps between two snapshots")
    ap.add_argument("--minutes", type=float, default=1.4)
    a = ap.parse_args()
    cp.cuda.Device(int(os.environ.get("LOCAL_RANK", 0))).use()
    print(f"process {a.rank} of {a.size} on device {cp.cuda.Device().id}", flush=True)
    comm = NCCLBackend(a.size, a.rank, host="127.0.0.1", port=a.port)
    cluster, note = Cluster(comm, a.rank, a.size, a.stars, a.soft), Diary(a.rank)
    note(f"{cluster.total} stars, {cluster.count} for each process, CuPy {cp.__version__}")
    step, over = 0, cp.zeros(1, cp.int32)
    while True:
        step += 1
        cluster.attract()
        cluster.move(cluster.longest_step())
        if step % a.note == 0:
            energy, drift = cluster.energy(), cluster.momentum()
            note(f"step {step} t {cluster.time:.4f} energy {energy[0]:.4f} {energy[1]:.4f} momentum {np.abs(drift).max():.2e}")
        if step % a.keep == 0:
            np.save(f"stars-{a.rank}.npy", cluster.stars.get())
            comm.barrier()
            note(f"step {step} kept")
        if step % 20 == 0:
            over[0] = time.time() - note.began > 60 * a.minutes
            comm.broadcast(over, 0)
            if int(over[0]):
                break
    cp.cuda.Device().synchronize()
    print(f"process {a.rank} ends, {step} steps", flush=True)


if __name__ == "__main__":
    main()
