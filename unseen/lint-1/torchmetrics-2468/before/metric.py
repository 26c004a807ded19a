import torch
import torch.distributed as dist


def gather_all(x):
    """Gathers tensors whose first dimension may differ."""
    world = dist.get_world_size()
    n = torch.tensor([x.size(0)], device=x.device)
    sizes = [torch.zeros_like(n) for _ in range(world)]
    dist.all_gather(sizes, n)
    m = max(int(s) for s in sizes)
    pad = torch.zeros((m - x.size(0), *x.shape[1:]), device=x.device, dtype=x.dtype)
    out = [torch.empty((m, *x.shape[1:]), device=x.device, dtype=x.dtype) for _ in range(world)]
    dist.all_gather(out, torch.cat([x, pad]))
    return [o[: int(s)] for o, s in zip(out, sizes)]


class ListMetric:
    """Collects scores and targets; some ranks may see no positive sample at all."""

    def __init__(self, device):
        self.device = device
        self.states = {"scores": [], "targets": []}
        self.dtypes = {"scores": torch.float32, "targets": torch.long}

    def update(self, scores, targets):
        keep = targets >= 0
        if keep.any():
            self.states["scores"].append(scores[keep])
            self.states["targets"].append(targets[keep])

    def sync(self):
        for name, values in self.states.items():
            if not values:
                continue
            gathered = gather_all(torch.cat(values))
            self.states[name] = [torch.cat(gathered)]

    def compute(self):
        self.sync()
        s, t = torch.cat(self.states["scores"]), torch.cat(self.states["targets"])
        order = s.argsort(descending=True)
        return t[order].float().cumsum(0)[: len(t)].mean()
