import argparse
import os
import time

import cupy as cp
import numpy as np
from cupyx.distributed import NCCLBackend


def gradient(w, x, y):
    error = x @ w - y
    return x.T @ error / len(x), float((error**2).mean())


def load_batch(step, rank, size):
    rng = np.random.default_rng(step * 131 + rank)
    x = rng.standard_normal((size, 512), dtype=np.float32)
    batch = {"x": x, "y": x[:, :64] * 0.5}
    return cp.asarray(batch["x"]), cp.asarray(batch["y"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--device", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=13333)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    cp.cuda.Device(args.rank if args.device is None else args.device).use()
    comm = NCCLBackend(args.world, args.rank, host=args.host, port=args.port)
    print(f"[{args.rank}] communicator of {args.world} ready, cupy {cp.__version__}, nccl {cp.cuda.nccl.get_version()}", flush=True)
    w = cp.random.RandomState(0).standard_normal((512, 64), dtype=cp.float32)
    comm.broadcast(w, 0)
    grad, stats = cp.zeros_like(w), cp.zeros(4, dtype=cp.float32)
    for step in range(1, args.steps + 1):
        x, y = load_batch(step, args.rank, args.batch)
        g, loss = gradient(w, x, y)
        norm = float(cp.linalg.norm(g))
        stats[0], stats[1] = loss, norm
        total = cp.zeros_like(stats)
        comm.all_reduce(g, grad)
        comm.all_reduce(stats, total)
        w -= 0.1 * grad / args.world
        if step % 50 == 0 and args.rank == 0:
            print(f"[{args.rank}] step {step} loss {float(total[0]) / args.world:.5f}", flush=True)
        if step % 200 == 0:
            comm.barrier()
            if args.rank == 0:
                cp.save(f"w-{step}.npy", w)
    cp.cuda.Stream.null.synchronize()
    print(f"[{args.rank}] done", flush=True)
    comm.stop()


if __name__ == "__main__":
    main()
