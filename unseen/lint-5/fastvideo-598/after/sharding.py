import os
import pickle
import random

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.utils.data import IterableDataset

from groups import get_sp_world_size, get_world_rank, get_world_size


def _find(path):
    return [
        os.path.join(root, name)
        for root, _, names in os.walk(path)
        for name in names
        if name.endswith(".parquet")
    ]


def _deal(files, shards, seed):
    rows = [pq.ParquetFile(f).metadata.num_rows for f in files]
    plan = [[] for _ in range(shards)]
    totals = [0] * shards
    for index in reversed(np.argsort(rows)):
        smallest = int(np.argmin(totals))
        plan[smallest].append(files[index])
        totals[smallest] += rows[index]
    for shard in plan:
        random.Random(seed).shuffle(shard)
    return {"plan": plan, "totals": totals}


def shard_files(path, num_sp_groups, num_workers, seed):
    plan_dir = os.path.join(path, f"plan_{num_sp_groups}_groups_{num_workers}_workers")
    plan_file = os.path.join(plan_dir, "plan.pkl")
    if get_world_rank() == 0:
        loaded = False
        if os.path.exists(plan_dir):
            try:
                with open(plan_file, "rb") as f:
                    pickle.load(f)
                loaded = True
            except Exception as error:
                print("plan unreadable, making a new one:", error)
        if not loaded:
            plan = _deal(_find(path), num_sp_groups * num_workers, seed)
            os.makedirs(plan_dir, exist_ok=True)
            with open(plan_file, "wb") as f:
                pickle.dump(plan, f)

    torch.distributed.barrier()
    with open(plan_file, "rb") as f:
        return pickle.load(f)


class LatentDataset(IterableDataset):
    def __init__(self, path, num_workers, seed=42):
        super().__init__()
        groups = get_world_size() // get_sp_world_size()
        found = shard_files(path, groups, num_workers, seed)
        first = get_world_rank() // get_sp_world_size() * num_workers
        self.files = found["plan"][first : first + num_workers]

    def __iter__(self):
        for shard in self.files:
            for name in shard:
                yield from pq.ParquetFile(name).iter_batches()
