import torch
import torch.distributed as dist
from torch.amp import GradScaler


class ShardedScaler(GradScaler):
    """Every rank of a sharded optimizer sees only its part of the gradients: the inf flags must be shared."""

    def __init__(self):
        super().__init__("cuda")

    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        state = self._per_optimizer_states[id(optimizer)]
        works = [dist.all_reduce(v, async_op=True) for v in state["found_inf_per_device"].values()]
        for w in works:
            w.wait()
