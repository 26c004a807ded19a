import torch
import torch.distributed as dist


class Optimizer:
    def __init__(self, inner, params):
        self.inner, self.params = inner, params

    def norm(self):
        total = sum((p.grad.float() ** 2).sum() for p in self.params)
        return total

    def step(self):
        self.inner.step()


class Chained:
    """Dense and expert parameters, clipped by one norm."""

    def __init__(self, parts):
        self.parts = parts

    def step(self):
        total = torch.stack([part.norm() for part in self.parts]).sum()
        dist.all_reduce(total)
        for part in self.parts:
            for p in part.params:
                p.grad.mul_(min(1.0, 1.0 / (total.sqrt().item() + 1e-6)))
            part.step()


def build(model, make):
    dense = [p for n, p in model.named_parameters() if "expert" not in n]
    expert = [p for n, p in model.named_parameters() if "expert" in n]
    parts = [Optimizer(make(group), group) for group in (dense, expert) if group]
    if len(parts) == 1:
        return parts[0]
    return Chained(parts)


def train(model, make, loader):
    optimizer = build(model, make)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
