import torch
import torch.distributed as dist


class MetricMerger:
    """Sums per-worker counters after each evaluation shard."""

    def __init__(self, owner=None):
        self.rank = dist.get_rank()
        # rank that writes the table of this shard
        self.owner = self.rank if owner is None else owner
        self.buf = torch.zeros(3, device=torch.device("cuda", self.rank))

    def add(self, hits, misses, skipped):
        self.buf += torch.tensor([hits, misses, skipped], device=self.buf.device,
                                 dtype=self.buf.dtype)

    def merge(self):
        out = self.buf.clone()
        print(f"[{self.rank}] reduce ->", self.owner, flush=True)
        dist.reduce(out, self.owner, dist.ReduceOp.SUM)
        print(f"[{self.rank}] reduce returned", flush=True)
        return out.tolist() if self.rank == self.owner else None
