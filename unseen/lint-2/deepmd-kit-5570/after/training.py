import logging
import math

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)


def total_batches(index, weights):
    """Batches of one epoch, weighted by how often each system is drawn."""
    p = torch.as_tensor(weights, dtype=torch.float32)
    p = p / p.sum()
    need = [n / max(float(q), 1e-12) for n, q in zip(index, p)]
    return int(math.ceil(max(need)))


class Trainer:
    def __init__(self, model, data, cfg):
        self.model, self.data, self.cfg = model, data, cfg
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        # the sampler measures its weights on this process's shard
        n = total_batches(data.index, data.sampler.weights)
        n = self._from_rank0(n)  # the weights carry noise of each rank
        if n <= 0:
            raise ValueError("no training batches")
        self.num_steps = int(math.ceil(cfg.num_epoch * n))
        self.valid_from = int(self.num_steps * cfg.full_valid_start)
        log.info("num_steps = %d from num_epoch = %s", self.num_steps, cfg.num_epoch)

    def _from_rank0(self, value):
        if not dist.is_initialized():
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def step(self, i):
        loss = self.model(**self.data.next()).mean()
        loss.backward()
        self.cfg.optimizer.step()
        self.cfg.optimizer.zero_grad()
        return loss

    def full_validation(self, i):
        dist.barrier()
        score = self.data.validate(self.model)
        dist.broadcast(score, src=0)
        return score

    def run(self):
        for i in range(self.num_steps):
            self.step(i)
            if i >= self.valid_from and i % self.cfg.valid_every == 0:
                self.full_validation(i)
