import os
import random

import torch
import torch.distributed as dist


def seed_process(seed):
    """Every process gets its own stream for augmentations."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    random.seed(seed + rank)
    torch.manual_seed(seed + rank)


class Buckets:
    def __init__(self, index, seed):
        self.index = index  # {"1.0": [paths...], "1.5": [...]}
        self.seed = seed

    def split(self, accelerator):
        """Keeps the part of this process of each bucket."""
        world, rank = accelerator.num_processes, accelerator.process_index
        out = {}
        for name, paths in sorted(self.index.items()):
            paths = sorted(paths)
            if os.environ.get("SHUFFLE_BUCKETS", "1") == "1":
                random.Random(f"{self.seed}-{name}").shuffle(paths)
            usable = len(paths) // world * world
            out[name] = paths[rank:usable:world]
        self.index = out
        return out


def build(accelerator, index, seed):
    seed_process(seed)
    return Buckets(index, seed).split(accelerator)
