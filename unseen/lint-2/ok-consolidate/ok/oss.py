import torch
import torch.distributed as dist


class Sharded:
    def __init__(self, optim, group=None):
        self.optim, self.group = optim, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.every = []

    def consolidate(self, to=0):
        """Collects all shards on rank `to`, or on all with -1. All ranks must call."""
        self.every = []
        keep = self.rank == to or to == -1
        send = self.rank != to or to == -1
        for r in range(self.world):
            src = dist.get_global_rank(self.group, r) if self.group is not None else r
            if r == self.rank:
                if keep:
                    self.every.append(self.optim.state_dict())
                box = [self.optim.state_dict() if send else None]
                dist.broadcast_object_list(box, src=src, group=self.group)
            else:
                box = [None]
                dist.broadcast_object_list(box, src=src, group=self.group)
                if keep:
                    self.every.append(box[0])

    def state_dict(self):
        if not self.every:
            raise RuntimeError("consolidate() first")
        return {"shards": self.every}


def save(opt, model, path):
    opt.consolidate(to=0)
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, path)
    dist.barrier()
