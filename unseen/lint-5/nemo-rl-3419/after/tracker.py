import torch
import torch.distributed as dist

from megatron.core import parallel_state


class AuxLossTracker:
    """Auxiliary losses of the MoE layers that live on this pipeline stage."""

    def __init__(self):
        self.entries = {}

    def record(self, name, loss, layer, num_layers):
        if name not in self.entries:
            self.entries[name] = torch.zeros(num_layers, device="cuda")
        self.entries[name][layer] += loss.detach()

    def ensure(self, name, num_layers):
        if name not in self.entries:
            self.entries[name] = torch.zeros(num_layers, device="cuda")

    def reduce_across_ranks(self):
        group = parallel_state.get_pipeline_model_parallel_group()
        for name in self.entries:
            dist.all_reduce(self.entries[name], group=group)

    def clear(self):
        for values in self.entries.values():
            values.zero_()


TRACKER = AuxLossTracker()
