import numpy as np
import torch.distributed as dist


def shared_seed(group=None):
    seed = np.random.randint(2**31)
    seeds = [None] * dist.get_world_size(group)
    dist.all_gather_object(seeds, seed, group=group)
    return seeds[0]


def order(dataset, group=None):
    rng = np.random.default_rng(shared_seed(group))
    return rng.permutation(len(dataset))[dist.get_rank(group) :: dist.get_world_size(group)]
