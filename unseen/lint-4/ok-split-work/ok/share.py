import torch.distributed as dist


def quantize_all(modules, quantize, out):
    rank, world = dist.get_rank(), dist.get_world_size()
    names = sorted(modules)
    mine = {}
    for name in names[rank::world]:
        mine[name] = quantize(modules[name])
    everything = [None] * world
    dist.all_gather_object(everything, mine)
    if rank == 0:
        for part in everything:
            out.update(part)
    dist.barrier()
    return out
