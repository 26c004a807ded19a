"""The leading singular vectors of a tall matrix: rows are spread over the processes, CuPy with plain NCCL calls."""
import argparse
import os
import sys
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl

TYPES = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--size", type=int, default=2)
    p.add_argument("--id-file", default="nccl.id")
    p.add_argument("--rows", type=int, default=400000)
    p.add_argument("--columns", type=int, default=1024)
    p.add_argument("--vectors", type=int, default=64)
    p.add_argument("--sweeps", type=int, default=200)
    p.add_argument("--report", type=int, default=10)
    p.add_argument("--snapshot", type=int, default=50)
    p.add_argument("--pause", type=float, default=0.04)
    return p.parse_args()


class Group:
    def __init__(self, a):
        self.size, self.rank = a.size, a.rank
        if a.rank == 0:
            unique = nccl.get_unique_id()
            with open(a.id_file + ".part", "w") as file:
                file.write(",".join(map(str, unique)))
            os.replace(a.id_file + ".part", a.id_file)
        while not os.path.exists(a.id_file):
            time.sleep(0.1)
        with open(a.id_file) as file:
            unique = bytes(int(x) for x in file.read().split(","))
        self.comm = nccl.NcclCommunicator(a.size, unique, a.rank)

    def sum(self, x):
        self.comm.allReduce(x.data.ptr, x.data.ptr, x.size, TYPES[x.dtype.name], nccl.NCCL_SUM, cp.cuda.get_current_stream().ptr)
        return x

    def send_from(self, x, root=0):
        self.comm.bcast(x.data.ptr, x.size, TYPES[x.dtype.name], root, cp.cuda.get_current_stream().ptr)
        return x


def say(a, text):
    print(f"{time.strftime('%H:%M:%S')} [{a.rank}] {text}", flush=True)


def archive(a):
    """The own rows: few strong directions and noise."""
    own = a.rows // a.size
    strong = cp.random.RandomState(5).standard_normal((40, a.columns), dtype=cp.float32)
    rng = cp.random.RandomState(100 + a.rank)
    weight = rng.standard_normal((own, 40), dtype=cp.float32) * cp.linspace(3, 0.5, 40, dtype=cp.float32)
    matrix = weight @ strong
    for at in range(0, own, 50000):
        matrix[at:at + 50000] += rng.standard_normal(matrix[at:at + 50000].shape, dtype=cp.float32)
    return matrix


def iterate(a, group, matrix):
    basis = cp.random.RandomState(a.rank).standard_normal((a.columns, a.vectors), dtype=cp.float32)
    group.send_from(basis)
    began = time.time()
    for sweep in range(1, a.sweeps + 1):
        image = matrix @ basis
        back = matrix.T @ image
        gram = image.T @ image
        group.sum(back)
        group.sum(gram)
        values = cp.linalg.eigvalsh(gram.astype(cp.float64) / a.rows)
        basis = cp.linalg.qr(back)[0]
        change = float(cp.abs(values[-8:]).sum())
        time.sleep(a.pause)
        if sweep == 1 or sweep % a.report == 0:
            say(a, f"sweep {sweep}: leading {float(values[-1]):.3f}, sum of eight {change:.3f}, {(time.time() - began) / sweep * 1e3:.1f} ms a sweep")
        if sweep % a.snapshot == 0 and a.rank == 0:
            np.save(f"basis-{sweep}.npy", cp.asnumpy(basis))
    return basis


def main():
    a = parse()
    count = cp.cuda.runtime.getDeviceCount()
    if count < a.size:
        os.environ["NCCL_HOSTID"] = f"n{a.rank}"
    cp.cuda.Device(a.rank % count).use()
    say(a, f"pid {os.getpid()} on device {cp.cuda.runtime.getDevice()} of {count}")
    group = Group(a)
    say(a, "joined")
    matrix = archive(a)
    say(a, f"{matrix.shape[0]} rows in memory")
    iterate(a, group, matrix)
    cp.cuda.Device().synchronize()
    say(a, "finished")
    return 0


if __name__ == "__main__":
    sys.exit(main())
