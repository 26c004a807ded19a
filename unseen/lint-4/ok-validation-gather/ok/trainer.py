import numpy as np
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, is_ddp, local_rank):
        self.is_ddp = is_ddp
        self.local_rank = local_rank

    def on_validation_epoch_end(self, outputs):
        hits = np.sum([out["hits"] for out in outputs], 0)
        losses = [out["loss"] for out in outputs]
        if self.is_ddp:
            world = dist.get_world_size()
            all_hits = [None for _ in range(world)]
            dist.all_gather_object(all_hits, hits)
            hits = np.vstack([h[None] for h in all_hits]).sum(0)
            all_losses = [None for _ in range(world)]
            dist.all_gather_object(all_losses, losses)
            losses = [loss for part in all_losses for loss in part]
        if self.local_rank == 0:
            print("loss", np.mean(losses), "hits", hits)

    def save(self, path):
        if self.local_rank == 0:
            torch.save({"done": True}, path)
        if self.is_ddp:
            dist.barrier()
