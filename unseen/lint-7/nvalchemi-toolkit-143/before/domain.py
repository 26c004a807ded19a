import torch
import torch.distributed as dist

WHOLE_SYSTEM = {"energy", "stress"}
PER_ATOM = {"forces", "charges"}


class DomainRunner:
    """Runs one spatial domain per rank and puts the pieces together."""

    def __init__(self, model, halo, group):
        self.model = model
        self.halo = halo
        self.group = group

    def _return_halo(self, value):
        send = value[self.halo.ghost_index].contiguous()
        recv = value.new_empty(self.halo.recv_total, value.shape[-1])
        dist.all_to_all_single(
            recv, send, self.halo.recv_counts, self.halo.send_counts, group=self.group
        )
        owned = value[: self.halo.n_owned].clone()
        return owned.index_add_(0, self.halo.owner_index, recv)

    def consolidate(self, local):
        merged = {}
        for name, value in local.items():
            if name in WHOLE_SYSTEM:
                dist.all_reduce(value, group=self.group)
            elif name in PER_ATOM:
                value = self._return_halo(value)
            merged[name] = value
        return merged

    def step(self, frame):
        return self.consolidate(self.model(frame))
