from collections import defaultdict

import torch
import torch.distributed as dist


def reduce_mean(x):
    if dist.is_initialized():
        dist.all_reduce(x)
        x = x / dist.get_world_size()
    return x


class TimeMean:
    """Mean over time of every output variable."""

    def __init__(self, device):
        self.device = device
        self.sums = {}
        self.steps = 0

    @torch.no_grad()
    def record(self, fields):
        """fields: variable name -> [time, lat, lon]; the names come from a set of requested outputs."""
        for name in set(fields):
            v = fields[name].to(self.device).sum(0)
            self.sums[name] = self.sums[name] + v if name in self.sums else v
        self.steps += next(iter(fields.values())).size(0)

    def get(self):
        if self.steps == 0:
            raise ValueError("nothing recorded")
        out = {}
        for name in sorted(self.sums):  # same order on all ranks
            value = self.sums[name]
            out[name] = reduce_mean(value / self.steps)
        return out


class Spectrum:
    def __init__(self):
        self.power = defaultdict(float)

    def get(self):
        return dict(sorted(self.power.items()))
