import hashlib
import os
from pathlib import Path

import torch.distributed as dist
from datasets import concatenate_datasets, load_from_disk
from torch.utils.data import DataLoader, DistributedSampler


class DataFactory:
    def __init__(self, config, sources):
        self.config = config
        self.sources = sources

    @property
    def global_rank(self):
        return int(os.environ.get("RANK", "0"))

    @property
    def local_rank(self):
        return int(os.environ.get("LOCAL_RANK", "0"))

    @property
    def is_builder(self):
        if self.config.cache_fs_type == "local":
            return self.local_rank == 0
        return self.global_rank == 0

    def cache_path(self):
        text = "|".join(str(source.args) for source in self.sources)
        return Path(self.config.cache_dir) / hashlib.sha256(text.encode()).hexdigest()

    def build(self):
        dataset = concatenate_datasets([source() for source in self.sources])
        return dataset.shuffle(seed=self.config.seed)

    def __call__(self):
        path = self.cache_path()
        if self.is_builder and not path.exists():
            dataset = self.build()
            unfinished = path.with_suffix(".incomplete")
            dataset.save_to_disk(unfinished.as_posix())
            unfinished.rename(path)

        dist.barrier()

        dataset = load_from_disk(path.as_posix())
        sampler = DistributedSampler(
            dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank(), drop_last=True
        )
        return DataLoader(dataset, batch_size=self.config.micro_batch_size, sampler=sampler,
                          drop_last=True)
