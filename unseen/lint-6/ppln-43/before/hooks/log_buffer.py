import os
import pickle
from pathlib import Path

import torch
import torch.distributed as dist

from hooks.base import Hook


class LogBufferHook(Hook):
    """Averages what the steps of an epoch have put into the buffer of the runner."""

    def before_epoch(self, runner):
        runner.buffer.clear()

    def after_iter(self, runner):
        runner.buffer.average()

    def after_epoch(self, runner):
        if dist.is_initialized():
            self.merge(runner)
        runner.buffer.average()

    @staticmethod
    def merge(runner):
        rank, size = dist.get_rank(), dist.get_world_size()
        part = Path(runner.work_dir, f"part_{rank}.pkl")
        if rank == 0:
            dist.barrier()
            for other in range(1, size):
                path = Path(runner.work_dir, f"part_{other}.pkl")
                values, counts = pickle.loads(path.read_bytes())
                for key in values:
                    runner.buffer.values[key].extend(values[key])
                    runner.buffer.counts[key].extend(counts[key])
                os.remove(path)
        else:
            part.write_bytes(pickle.dumps((dict(runner.buffer.values), dict(runner.buffer.counts))))
            dist.barrier()
        dist.barrier()
