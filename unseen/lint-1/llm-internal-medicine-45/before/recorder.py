import json
import os
from collections import defaultdict

import torch.distributed as dist


def world_gather(obj):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, obj)
    return out


class Recorder:
    """Per-layer activation statistics of pipeline stages."""

    def __init__(self, path, gather_fn=None):
        self.path = path
        self.gather_fn = gather_fn
        self.local = {}

    def hook(self, name):
        def fn(module, args, output):
            x = output[0] if isinstance(output, tuple) else output
            self.local[name] = {"absmax": x.abs().max().item(), "rms": x.float().pow(2).mean().sqrt().item()}

        return fn

    def attach(self, stage):
        # a stage may hold only the embedding or the head
        for name, mod in stage.named_modules():
            if name.endswith(".mlp") or name.endswith(".attention"):
                mod.register_forward_hook(self.hook(name))

    def gather_and_aggregate(self):
        local, self.local = self.local, {}
        if not local:
            return {}
        if self.gather_fn is None:
            return local
        merged = defaultdict(list)
        for part in self.gather_fn(local):
            for k, v in part.items():
                merged[k].append(v)
        return {k: {m: max(d[m] for d in v) for m in v[0]} for k, v in merged.items()}

    def flush(self, step):
        stats = self.gather_and_aggregate()
        if dist.get_rank() == 0 and stats:
            with open(os.path.join(self.path, "layers.jsonl"), "a") as f:
                f.write(json.dumps({"step": step, **stats}) + "\n")


def build(stage, path):
    rec = Recorder(path, gather_fn=world_gather)
    rec.attach(stage)
    return rec
