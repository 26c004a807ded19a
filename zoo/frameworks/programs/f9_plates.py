"""Heat in a plate of mixed metal: implicit steps in time, each solved by conjugate gradients. Rows of the plate are spread over the processes; CuPy
with NCCL for sums and for the rows at the seams. The NCCL id goes through a file in the folder of the job."""
import argparse
import os
import sys
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl

TYPES = {"f": nccl.NCCL_FLOAT32, "d": nccl.NCCL_FLOAT64}


class Team:
    def __init__(self, rank, world, folder):
        self.rank, self.world = rank, world
        path = os.path.join(folder, "nccl.id")
        if rank == 0:
            id = nccl.get_unique_id()
            with open(path + ".new", "wb") as file:
                file.write(id)
            os.replace(path + ".new", path)
        else:
            while not os.path.exists(path):
                time.sleep(0.1)
            with open(path, "rb") as file:
                id = file.read()
        self.comm = nccl.NcclCommunicator(world, id, rank)

    def sum(self, x):
        """In place, over all processes."""
        self.comm.allReduce(x.data.ptr, x.data.ptr, x.size, TYPES[x.dtype.char], nccl.NCCL_SUM, cp.cuda.get_current_stream().ptr)
        return x

    def seams(self, field):
        """The first and last row of `field` are copies of the neighbours' rows."""
        stream = cp.cuda.get_current_stream().ptr
        nccl.groupStart()
        for peer, mine, theirs in ((self.rank - 1, field[1], field[0]), (self.rank + 1, field[-2], field[-1])):
            if 0 <= peer < self.world:
                self.comm.send(mine.data.ptr, mine.size, TYPES[mine.dtype.char], peer, stream)
                self.comm.recv(theirs.data.ptr, theirs.size, TYPES[theirs.dtype.char], peer, stream)
        nccl.groupEnd()


class Plate:
    def __init__(self, o, team):
        self.o, self.team, self.rows = o, team, o.side // team.world
        rng = np.random.default_rng(6)
        metal = rng.choice(np.array([0.2, 1.0, 3.0], np.float32), (o.side // 32, o.side // 32)).repeat(32, 0).repeat(32, 1)
        first = team.rank * self.rows
        self.metal = cp.asarray(np.pad(metal, 1, mode="edge")[first: first + self.rows + 2])
        self.heat = cp.zeros((self.rows + 2, o.side + 2), cp.float32)
        self.lamps = cp.asarray(np.pad((rng.random((o.side // 64, o.side // 64)) < 0.1).repeat(64, 0).repeat(64, 1), 1)[first: first + self.rows + 2].astype(np.float32))
        m = self.metal
        self.weights = [0.5 * (m[1:-1, 1:-1] + n) * o.dt for n in (m[:-2, 1:-1], m[2:, 1:-1], m[1:-1, :-2], m[1:-1, 2:])]
        self.diagonal = 1 + sum(self.weights)

    def apply(self, x):
        """(1 - dt L) x; the rim of the plate is cold."""
        self.team.seams(x)
        up, down, left, right = self.weights
        y = cp.zeros_like(x)
        y[1:-1, 1:-1] = self.diagonal * x[1:-1, 1:-1] - up * x[:-2, 1:-1] - down * x[2:, 1:-1] - left * x[1:-1, :-2] - right * x[1:-1, 2:]
        return y

    def dot(self, a, b):
        part = cp.sum(a[1:-1] * b[1:-1], dtype=cp.float64).reshape(1)
        return float(self.team.sum(part)[0])

    def solve(self, right, x):
        """Conjugate gradients with the diagonal as preconditioner; the number of iterations."""
        residual = right - self.apply(x)
        inverse = cp.zeros_like(x)
        inverse[1:-1, 1:-1] = 1 / self.diagonal
        z = inverse * residual
        p, rz = z.copy(), self.dot(residual, z)
        goal = self.o.tolerance * self.dot(right, inverse * right)
        for iteration in range(1, self.o.iterations + 1):
            q = self.apply(p)
            alpha = rz / self.dot(p, q)
            x += alpha * p
            residual -= alpha * q
            z = inverse * residual
            before, rz = rz, self.dot(residual, z)
            if rz < goal:
                return iteration
            p = z + (rz / before) * p
        raise RuntimeError(f"no convergence: {rz:.3e} after {iteration} iterations, wanted {goal:.3e}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--folder", default=".")
    p.add_argument("--side", type=int, default=2048)
    p.add_argument("--moments", type=int, default=120)
    p.add_argument("--dt", type=float, default=4.0)
    p.add_argument("--iterations", type=int, default=400)
    p.add_argument("--tolerance", type=float, default=1e-8)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("--keep", type=int, default=40)
    o = p.parse_args()
    cp.cuda.Device(int(os.environ.get("LOCAL_RANK", o.rank))).use()
    print(f"rank {o.rank}: device {cp.cuda.Device().id}, CuPy {cp.__version__}, NCCL {nccl.get_version()}", flush=True)
    team = Team(o.rank, o.world, o.folder)
    plate, began = Plate(o, team), time.time()
    print(f"rank {o.rank}: {plate.rows} rows of {o.side}", flush=True)
    for moment in range(1, o.moments + 1):
        count = plate.solve(plate.heat + o.dt * plate.lamps, plate.heat)
        if moment <= 3 or moment % o.show == 0:
            warm = team.sum(cp.sum(plate.heat[1:-1], dtype=cp.float64).reshape(1))
            if o.rank == 0:
                print(f"rank 0 moment {moment}: {count} iterations, mean {float(warm[0]) / o.side ** 2:.4f}, {time.time() - began:.1f} s", flush=True)
        if moment % o.keep == 0:
            cp.save(f"plate-{o.rank}.npy", plate.heat[1:-1])
            if o.rank == 0:
                print(f"rank 0 moment {moment}: kept", flush=True)
    cp.cuda.get_current_stream().synchronize()
    team.sum(cp.ones(1, cp.float32))
    cp.cuda.get_current_stream().synchronize()
    print(f"rank {o.rank}: ready after {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
