import torch
import torch.distributed as dist


class Dist:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def gather(self, x):
        parts = None
        if self.rank == 0:
            parts = [torch.empty_like(x) for _ in range(self.world)]
        dist.gather(x, parts)
        return parts

    def gather_irregular(self, x, fill=float("nan")):
        """First dimension may differ between ranks."""
        n = torch.tensor([x.size(0)], device=x.device)
        biggest = n.clone()
        dist.all_reduce(biggest, op=dist.ReduceOp.MAX)
        sizes = self.gather(n)
        if x.size(0) < biggest.item():
            pad = x.new_full((int(biggest.item()) - x.size(0), *x.shape[1:]), fill)
            x = torch.cat([x, pad])
        parts = self.gather(x)
        if self.rank != 0:
            return None
        return [p[: int(s)] for p, s in zip(parts, sizes)]


def summary(values):
    d = Dist()
    parts = d.gather_irregular(values)
    if parts is None:
        return {}
    everything = torch.cat(parts)
    return {"mean": everything.mean().item(), "max": everything.max().item()}
