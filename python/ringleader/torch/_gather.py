"""Numbers of all ranks of a group, for which training does not wait."""

import torch
import torch.distributed as dist

from ringleader.torch._later import Later


class Gathered:
    """The numbers of all ranks of a group, on their way to the host.

    Gathered at once, on a stream of its own, where the group works on GPUs; a group of gloo gathers when they are read. All ranks
    of the group make it and read it at the same points.

    Args:
        own: this rank's numbers, of one dimension.
        group: the process group.
        aside: where the gathering is queued.
    """

    def __init__(self, own, group, aside):
        self._own, self._group, self._n = own, group, own.numel()
        backend = dist.get_backend(group)
        if backend == "gloo":
            self._numbers = Later(own)
            return
        if "nccl" in backend and not own.is_cuda:
            own = self._own = own.cuda()
        with aside.after(own.device):
            all_ = torch.empty(dist.get_world_size(group) * self._n, dtype=own.dtype, device=own.device)
            dist.all_gather_into_tensor(all_, own, group=group)
            self._numbers = Later(all_)
        self._group = None

    def is_there(self):
        """Whether a read returns at once, and needs no other rank."""
        return self._group is None and self._numbers.is_there()

    def rows(self):
        """The numbers of each rank of the group, in its order."""
        numbers = self._numbers.read()
        if self._group is not None:
            own = torch.tensor(numbers, dtype=self._own.dtype)
            all_ = torch.empty(dist.get_world_size(self._group) * self._n, dtype=own.dtype)
            dist.all_gather_into_tensor(all_, own, group=self._group)
            self._numbers, self._group = Later(all_), None
            numbers = all_.tolist()
        return [tuple(numbers[at : at + self._n]) for at in range(0, len(numbers), self._n)]
