import torch
import torch.distributed as dist
from megatron.core import parallel_state


def moe_losses(tracker, scale):
    totals = {}
    for name, entry in tracker.items():
        values = entry["values"]
        dist.all_reduce(values, group=parallel_state.get_pipeline_model_parallel_group())
        totals[name] = float(values.sum() * scale)
    return totals


class Step:
    def __init__(self, module, tracker):
        self.module = module
        self.tracker = tracker

    def training_step(self, batch):
        out = self.module.forward_backward(batch)
        if parallel_state.is_pipeline_last_stage():
            loss = out["loss"].mean()
            self.module.log("reduced_train_loss", loss)
        return out
