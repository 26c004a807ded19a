import os

import torch
import torch.distributed as dist

LOCAL = None


def make_local_group(per_node):
    """All ranks create all node groups, each keeps its own."""
    global LOCAL
    world, rank = dist.get_world_size(), dist.get_rank()
    node = rank // per_node
    for i in range(world // per_node):
        pg = dist.new_group(list(range(i * per_node, (i + 1) * per_node)))
        if i == node:
            LOCAL = pg


def node_first(fn):
    """One process of each node works first."""
    first = dist.get_rank(LOCAL) == 0
    if first:
        fn()
    dist.barrier(group=LOCAL)
    if not first:
        fn()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    make_local_group(int(os.environ["LOCAL_WORLD_SIZE"]))
    node_first(lambda: os.makedirs("/tmp/cache", exist_ok=True))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
