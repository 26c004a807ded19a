import time
from pathlib import Path

import torch.distributed as dist


class Broadcaster:
    def __init__(self, world, sender, base):
        self.world, self.sender, self.base = world, sender, Path(base)

    def runs(self, state):
        return [(i, self.base / str(i)) for i in state.ready]

    def notify(self, runs):
        for _, folder in runs:
            (folder / "BROADCAST").touch()

    def wait(self, runs):
        for _, folder in runs:
            while not (folder / "NCCL_READY").exists():
                time.sleep(0.1)

    def broadcast(self, model, state, step):
        runs = self.runs(state)
        if self.world.is_master:
            self.notify(runs)
        self.wait(runs)
        for name, p in sorted(model.named_parameters()):
            dist.broadcast(p.data, src=0)
        return step
