import os
import chainermn
import numpy as np


def shard(rank):
    return '/data/shards/%03d.npz' % rank


def main():
    comm = chainermn.create_communicator('hierarchical')
    if comm.rank == 0:
        files = [shard(r) for r in range(comm.size)]
    else:
        files = None
    files = comm.mpi_comm.bcast(files)

    path = files[comm.rank]
    # shards are written by prepare.py on the first machine
    if not os.path.exists(path):
        raise ValueError('missing shard: %s' % path)
    data = np.load(path)
    comm2 = comm.split(comm.rank % 2, comm.rank)
    train(comm2, data)


# [train() and the argument parsing cut here]

if __name__ == "__main__":
    main()
