import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class ClusterAccelerator:
    """Processes that the scheduler has started, one per GPU."""

    def __init__(self, trainer, nodes):
        self.trainer, self.nodes = trainer, nodes
        self.local_rank = int(os.environ["SLURM_LOCALID"])
        self.node_rank = int(os.environ["SLURM_NODEID"])

    def set_world_ranks(self):
        per_node = self.trainer.devices
        self.trainer.local_rank = self.local_rank
        self.trainer.rank = self.node_rank * per_node + self.local_rank
        self.trainer.world_size = self.nodes * per_node

    def init_device(self):
        torch.cuda.set_device(self.local_rank)

    def train(self, model):
        self.set_world_ranks()
        self.init_device()
        dist.init_process_group(
            "nccl", init_method="env://", rank=self.trainer.rank, world_size=self.trainer.world_size
        )
        model.trainer = self.trainer
        dist.barrier()
        model = DistributedDataParallel(model.cuda())
        try:
            return self.trainer.fit_loop(model)
        finally:
            dist.destroy_process_group()


class CpuAccelerator(ClusterAccelerator):
    def init_device(self):
        pass
