import torch
import torch.distributed as dist


class Checkpoint:
    def consolidate(self, optimizer, rank):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, optimizer.local_state_dict())
        if dist.get_rank() != rank:
            return None
        merged = {}
        for state in states:
            merged.update(state)
        return merged

    def save(self, model, optimizer, path):
        merged = self.consolidate(optimizer, 0)
        if merged is not None:
            torch.save({"model": model.state_dict(), "optimizer": merged}, path)
        dist.barrier()
