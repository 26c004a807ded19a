from collections import defaultdict

import torch
import torch.distributed as dist


class Bookkeeper:
    """Collects metrics of all ranks every few steps, on a group of its own."""

    def __init__(self, interval=10):
        self.interval = interval
        self.group = dist.new_group(backend="gloo")
        self.pending = defaultdict(dict)

    def record(self, step, name, value):
        self.pending[step][name] = float(value)

    def flush(self, step):
        if not self.pending:
            return
        part = dict(self.pending)
        self.pending.clear()
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, part, group=self.group)
        if dist.get_rank() != 0:
            return
        for s in sorted({s for p in every for s in p}):
            names = sorted({n for p in every for n in p.get(s, {})})
            print(s, {n: sum(p.get(s, {}).get(n, 0.0) for p in every) / len(every) for n in names}, flush=True)


class PolicyStep:
    def __init__(self, model, opt, books):
        self.model, self.opt, self.books = model, opt, books

    def __call__(self, step, micro_batches):
        # a data-parallel rank may get no sample with a non-zero advantage
        losses = []
        for mb in micro_batches:
            if not mb["advantages"].any():
                continue
            loss = self.model.loss(mb)
            loss.backward()
            losses.append(loss.detach())
        for p in self.model.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
        self.opt.step()
        self.opt.zero_grad()
        if losses:
            self.books.record(step, "loss", torch.stack(losses).mean())
        if step % self.books.interval == 0:
            self.books.flush(step)
