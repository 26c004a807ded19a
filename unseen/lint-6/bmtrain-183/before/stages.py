import torch
from torch import nn

from objects import allgather_object, broadcast_object


class StagedModel(nn.Module):
    """The layers of one pipeline stage, with the names of all the others."""

    def __init__(self, layers, first, group):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.first = first
        self.group = group

    def names(self):
        own = [f"layers.{self.first + i}.{name}"
               for i, layer in enumerate(self.layers)
               for name, _ in layer.named_parameters()]
        return [name for part in allgather_object(own, self.group) for name in part]

    def load(self, path):
        index = torch.load(path) if self.first == 0 else None
        index = broadcast_object(index, self.group)
        missing = [name for name in self.names() if name not in index]
        if missing:
            raise KeyError(f"not in {path}: {missing[:5]}")
        for i, layer in enumerate(self.layers):
            prefix = f"layers.{self.first + i}."
            layer.load_state_dict(
                {k[len(prefix):]: v for k, v in index.items() if k.startswith(prefix)}
            )
