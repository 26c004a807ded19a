import argparse
import math
import time

from mpi4py import MPI
from torch.utils.data import DataLoader, Sampler

from formats import TarSamples

comm = MPI.COMM_WORLD


class ShareSampler(Sampler):
    def __init__(self, rank, size, n_samples):
        share = int(math.ceil(n_samples / size))
        first = rank * share
        last = min(first + share, n_samples)
        self.indices = list(range(first, last))

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        return iter(self.indices)


def run_epoch(loader, compute_time):
    waited = 0.0
    mark = time.perf_counter()
    for batch in loader:
        waited += time.perf_counter() - mark
        time.sleep(compute_time)
        comm.Barrier()
        mark = time.perf_counter()
    return waited


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--compute-time", type=float, default=0.02)
    args = parser.parse_args()
    samples = TarSamples(args.data)
    sampler = ShareSampler(comm.rank, comm.size, len(samples))
    loader = DataLoader(samples, batch_size=args.batch, sampler=sampler, num_workers=4, drop_last=True)
    for epoch in range(args.epochs):
        waited = run_epoch(loader, args.compute_time)
        slowest = comm.reduce(waited, op=MPI.MAX, root=0)
        if comm.rank == 0:
            print(f"epoch {epoch}: slowest rank waited {slowest:.2f} s for data")


if __name__ == "__main__":
    main()
