import torch
import torch.distributed as dist


def is_parallel():
    return dist.is_available() and dist.is_initialized()


class Meter:
    def __init__(self):
        self.count, self.total = 0, 0.0

    def update(self, value, n=1):
        self.count += n
        self.total += value * n

    def synchronize(self):
        if not is_parallel():
            return
        both = torch.tensor([self.count, self.total], dtype=torch.float64, device="cuda")
        dist.barrier()
        dist.all_reduce(both)
        self.count, self.total = int(both[0]), both[1].item()


def reduce_dict(values, average=True):
    if dist.get_world_size() < 2:
        return values
    names = sorted(values.keys())
    stacked = torch.stack([values[name] for name in names], dim=0)
    dist.all_reduce(stacked)
    if average:
        stacked /= dist.get_world_size()
    return dict(zip(names, stacked))
