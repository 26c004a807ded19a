import torch
import torch.distributed as dist

_LOCAL_GROUP = None


def synchronize():
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def worker(local_rank, main, world_size, per_machine, machine_rank, url, args):
    global _LOCAL_GROUP
    rank = machine_rank * per_machine + local_rank
    dist.init_process_group("nccl", init_method=url, world_size=world_size, rank=rank)
    for i in range(world_size // per_machine):
        group = dist.new_group(list(range(i * per_machine, (i + 1) * per_machine)))
        if i == machine_rank:
            _LOCAL_GROUP = group
    assert per_machine <= torch.cuda.device_count()
    torch.cuda.set_device(local_rank)
    synchronize()
    main(*args)
