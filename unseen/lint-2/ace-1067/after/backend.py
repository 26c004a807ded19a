import contextlib
import logging

import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)


class Backend:
    def __init__(self):
        dist.init_process_group("nccl")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.cuda.set_device(self.rank % torch.cuda.device_count())

    def barrier(self):
        dist.barrier()

    def reduce_mean(self, x):
        dist.all_reduce(x)
        return x / self.world

    def shutdown(self):
        logger.debug("Shutting down rank %d", self.rank)
        dist.destroy_process_group()


@contextlib.contextmanager
def distributed():
    backend = Backend()
    try:
        yield backend
    finally:
        backend.shutdown()


def main(cfg, build, batches):
    with distributed() as backend:
        model = build(cfg)
        for step, batch in enumerate(batches(cfg, backend.rank, backend.world)):
            loss = model(batch)
            if not torch.isfinite(loss):
                raise ValueError(f"loss is {loss.item()} in step {step} of rank {backend.rank}")
            mean = backend.reduce_mean(loss.detach().clone())
            if backend.rank == 0:
                logger.info("step %d loss %.4f", step, mean.item())
