import logging

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)


class Trainer:
    """Finds the size of a microbatch that fits, by halving it."""

    def __init__(self, model, optimizer, microbatch):
        self.model, self.optimizer, self.microbatch = model, optimizer, microbatch

    def run_batch(self, batch):
        while True:
            oom = 0
            try:
                for part in batch.split(self.microbatch):
                    loss = self.model(part).mean()
                    loss.backward()
            except torch.cuda.OutOfMemoryError:
                oom = 1
            if oom:
                self.microbatch //= 2
                log.info("microbatch %d", self.microbatch)
                self.optimizer.zero_grad(set_to_none=True)
                continue
            break
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
