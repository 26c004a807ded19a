import os
import sys
import time

import cupy
from cupy.cuda import nccl
from mpi4py import MPI

world = MPI.COMM_WORLD


def connect():
    rank, size = world.Get_rank(), world.Get_size()
    local = world.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()
    cupy.cuda.Device(local).use()
    uid = world.bcast(nccl.get_unique_id() if rank == 0 else None, root=0)
    return rank, size, nccl.NcclCommunicator(size, uid, rank)


def read_materials(rank, n):
    table = {"conductivity": 0.1 + 0.02 * rank, "source": 1.0}
    return cupy.full((n, n), table["conductivity"], cupy.float32), table["source"]


def step(field, k, source, edges):
    padded = cupy.concatenate([edges[0][None], field, edges[1][None]])
    lap = padded[:-2] + padded[2:] + cupy.roll(field, 1, 1) + cupy.roll(field, -1, 1) - 4 * field
    field += k * lap
    field[0, 0] += source
    return cupy.abs(lap).max()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    n = int(os.environ.get("GRID", "2048"))
    rank, size, comm = connect()
    stream = cupy.cuda.get_current_stream()
    k, source = read_materials(rank, n)
    field = cupy.zeros((n, n), cupy.float32)
    edges = cupy.zeros((2, n), cupy.float32)
    began = time.time()
    for it in range(1, steps + 1):
        up, down = (rank - 1) % size, (rank + 1) % size
        first, last = field[0].copy(), field[-1].copy()
        nccl.groupStart()
        comm.send(first.data.ptr, n, nccl.NCCL_FLOAT32, up, stream.ptr)
        comm.recv(edges[1].data.ptr, n, nccl.NCCL_FLOAT32, down, stream.ptr)
        comm.send(last.data.ptr, n, nccl.NCCL_FLOAT32, down, stream.ptr)
        comm.recv(edges[0].data.ptr, n, nccl.NCCL_FLOAT32, up, stream.ptr)
        nccl.groupEnd()
        change = step(field, k, source, edges)
        comm.allReduce(change.data.ptr, change.data.ptr, 1, nccl.NCCL_FLOAT32, nccl.NCCL_MAX, stream.ptr)
        if it % 200 == 0:
            stream.synchronize()
            hottest = world.reduce(float(field.max()), op=MPI.MAX, root=0)
            if rank == 0:
                print(f"{it:6d} change {float(change):.3e} hottest {hottest:.4f} {(time.time() - began) / it * 1e3:.2f} ms/step", flush=True)
        if it % 1000 == 0:
            world.Barrier()
            cupy.save(f"field.{rank}.npy", field)
    stream.synchronize()
    world.Barrier()
    if rank == 0:
        print("simulation finished", flush=True)


if __name__ == "__main__":
    main()
