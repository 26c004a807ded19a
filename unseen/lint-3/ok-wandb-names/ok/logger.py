import torch.distributed as dist
import wandb


class Logger:
    def __init__(self, rank_zero_only=True):
        self.enabled = not rank_zero_only or dist.get_rank() == 0
        self.entity = self.project = None

    def init(self, **kwargs):
        if self.enabled:
            wandb.init(**kwargs)
            names = [str(wandb.run.entity), str(wandb.run.project)]
        else:
            names = [None, None]
        dist.broadcast_object_list(names)
        self.entity, self.project = names
