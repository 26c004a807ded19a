import os

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.stateful import Stateful


class ModelPart(Stateful):
    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return get_model_state_dict(self.model)


class OptimizerPart(Stateful):
    def __init__(self, model, optimizer, scheduler=None):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler

    def state_dict(self):
        state = {"optim": get_optimizer_state_dict(self.model, self.optimizer)}
        if self.scheduler is not None:
            state["sched"] = self.scheduler.state_dict()
        return state


def save_tokenizer_once(tokenizer, path):
    """Each rank holds the same tokenizer, so that one copy is enough."""
    distributed = dist.is_initialized()
    if not distributed or dist.get_rank() == 0:
        print("saving the tokenizer to", path)
        tokenizer.save_pretrained(path)
    if distributed:
        dist.barrier()


class CheckpointManager:
    def __init__(self, config):
        self.config = config

    def save(self, model, weights_path, optimizer=None, scheduler=None, optimizer_path=None,
             tokenizer=None, tokenizer_path=None):
        dcp.save({"model": ModelPart(model)}, checkpoint_id=weights_path)
        if optimizer is not None:
            if optimizer_path is None:
                raise ValueError("optimizer_path must be given with the optimizer")
            dcp.save(
                {"optim": OptimizerPart(model, optimizer, scheduler)}, checkpoint_id=optimizer_path
            )
        if tokenizer is not None:
            if tokenizer_path is None:
                tokenizer_path = os.path.join(os.path.dirname(weights_path), "tokenizer")
            save_tokenizer_once(tokenizer, tokenizer_path)
