from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def first_on_node(local_rank):
    """The body runs first on one process of each node, then on the others."""
    if local_rank not in (-1, 0):
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()
