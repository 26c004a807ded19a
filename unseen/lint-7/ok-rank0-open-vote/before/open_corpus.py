import datetime
import sys

import torch
import torch.distributed as dist
from datasets import load_dataset


class Ranks:
    def __init__(self, backend="gloo"):
        dist.init_process_group(backend, init_method="env://", timeout=datetime.timedelta(hours=4))
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()

    def all_true(self, flag):
        votes = torch.tensor([int(flag)], dtype=torch.int32)
        dist.all_reduce(votes, op=dist.ReduceOp.SUM)
        return votes.item() == self.count

    def raise_together(self, error):
        """Raises on every rank as soon as one of them has an error."""
        if self.all_true(error is None):
            return
        if error is not None:
            raise error
        raise RuntimeError("another rank failed")


def open_corpus(ranks, name, split):
    """Rank 0 goes first and fills the cache, then the others read it."""
    error, corpus = None, None
    if ranks.rank == 0:
        try:
            corpus = load_dataset(name, split=split)
        except Exception as problem:
            print(f"rank 0 cannot open {name}: {problem}", file=sys.stderr, flush=True)
            error = problem
    ranks.raise_together(error)

    if ranks.rank != 0:
        try:
            corpus = load_dataset(name, split=split)
        except Exception as problem:
            print(f"rank {ranks.rank} cannot open {name}: {problem}", file=sys.stderr, flush=True)
            error = problem
    ranks.raise_together(error)
    return corpus


if __name__ == "__main__":
    ranks = Ranks()
    corpus = open_corpus(ranks, sys.argv[1], "train")
    lengths = torch.zeros(1, dtype=torch.int64)
    for i in range(ranks.rank, len(corpus), ranks.count):
        lengths += len(corpus[i]["text"])
    dist.reduce(lengths, dst=0)
    if ranks.rank == 0:
        print(f"{len(corpus)} documents, {lengths.item()} characters")
