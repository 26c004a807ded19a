import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Groups:
    def __init__(self):
        self.sp = None
        self.cfg = None


GROUPS = Groups()


def split_blocks(blocks, degree):
    groups, chunks = [], []
    for block in blocks:
        size = len(block) // degree
        parts = [block[i * size : (i + 1) * size] for i in range(degree)]
        chunks.extend(parts)
        groups.extend([list(ranks) for ranks in zip(*parts)])
    return groups, chunks


def init_groups(rank, world_size, cfg_degree, sp_degree):
    assert world_size == cfg_degree * sp_degree
    cfg_groups, cfg_blocks = split_blocks([list(range(world_size))], cfg_degree)
    for ranks in cfg_groups:
        if rank in ranks:
            GROUPS.cfg = dist.new_group(ranks)

    sp_groups, _ = split_blocks(cfg_blocks, sp_degree)
    for ranks in sp_groups:
        if rank in ranks:
            GROUPS.sp = dist.new_group(ranks)


def worker(rank, world_size, queue_in, queue_out, module, cfg_degree, sp_degree):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29500")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    init_groups(rank, world_size, cfg_degree, sp_degree)
    module = module.to(f"cuda:{rank}")
    while True:
        data = [queue_in.get() if rank == 0 else None]
        dist.broadcast_object_list(data, src=0)
        if data[0] is None:
            break
        part = data[0].to(rank).chunk(cfg_degree)[dist.get_rank(GROUPS.cfg)]
        with torch.no_grad():
            result = module(part)
        whole = [torch.empty_like(result) for _ in range(cfg_degree)]
        dist.all_gather(whole, result, group=GROUPS.cfg)
        if rank == 0:
            queue_out.put(torch.cat(whole).cpu())
        dist.barrier()
    dist.destroy_process_group()


def start(module, cfg_degree, sp_degree):
    context = mp.get_context("spawn")
    queues = context.Queue(), context.Queue()
    world_size = cfg_degree * sp_degree
    args = (world_size, *queues, module, cfg_degree, sp_degree)
    return mp.spawn(worker, args=args, nprocs=world_size, join=False), queues
