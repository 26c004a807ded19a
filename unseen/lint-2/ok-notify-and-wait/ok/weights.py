import time
from pathlib import Path

import torch
import torch.distributed as dist


class WeightSender:
    """Sends weights to the inference pool once it is ready."""

    def __init__(self, runs, out, pool_group):
        self.runs, self.out, self.pool = runs, Path(out), pool_group
        self.master = dist.get_rank() == 0

    def _dirs(self, step):
        # the run table is the same on every trainer rank
        return [self.out / name / f"step_{step}" for name, ready in self.runs.items() if ready]

    def _notify(self, dirs):
        for d in dirs:
            d.mkdir(parents=True, exist_ok=True)
            (d / "STABLE").touch()

    def _wait_ready(self, dirs):
        while not all((d / "READY").exists() for d in dirs):
            time.sleep(0.1)

    @torch.no_grad()
    def send(self, model, step):
        dirs = self._dirs(step)
        if self.master:
            self._notify(dirs)
        self._wait_ready(dirs)
        for name, p in model.named_parameters():
            full = p.full_tensor() if hasattr(p, "full_tensor") else p
            if self.master:
                dist.broadcast(full.contiguous(), src=0, group=self.pool)
        dist.barrier()
