from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Manager:
    def __init__(self, base, model):
        self.base, self.model = Path(base), model
        self.rank = dist.get_rank()

    def load(self, step):
        folder = self.base / f"step_{step}"
        state = {"model": self.model.state_dict()}
        dcp.load(state, checkpoint_id=str(folder))
        self.model.load_state_dict(state["model"])
        path = folder / "train_state.pt"
        box = [None]
        if path.exists():
            if self.rank == 0:
                box[0] = torch.load(path, map_location="cpu")
            dist.broadcast_object_list(box, src=0)
        return box[0]
