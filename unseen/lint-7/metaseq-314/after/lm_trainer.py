import contextlib
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger(__name__)


class Trainer:
    def __init__(self, task, model, criterion, optimizer, device):
        self.task = task
        self.model = DistributedDataParallel(model.to(device), device_ids=[device])
        self.criterion = criterion
        self.optimizer = optimizer
        self.device = device
        self.updates = 0

    def _sync_context(self, position, count):
        if position < count - 1:
            return self.model.no_sync()
        return contextlib.nullcontext()

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        tokens = 0
        for i, sample in enumerate(samples):
            sample = self.task.to_device(sample, self.device)
            try:
                with self._sync_context(i, len(samples)):
                    loss, n = self.criterion(self.model, sample)
                    loss.backward()
                tokens += n
            except RuntimeError as error:
                if "out of memory" in str(error):
                    logger.error("ran out of memory: %s", error)
                    logger.error(torch.cuda.memory_summary(self.device))
                raise
        stats = torch.tensor([tokens], dtype=torch.float64, device=self.device)
        dist.all_reduce(stats)
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.mul_(dist.get_world_size() / max(stats[0].item(), 1.0))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.updates += 1
        return {"tokens": stats[0].item(), "grad_norm": norm.item()}
