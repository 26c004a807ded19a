import os

import torch.distributed as dist


def get_world_rank():
    return dist.get_rank()


def get_world_size():
    return dist.get_world_size()


def get_sp_world_size():
    return int(os.environ.get("SP_SIZE", "1"))
