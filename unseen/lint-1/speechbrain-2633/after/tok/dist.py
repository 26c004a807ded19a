import torch.distributed as dist


def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0


def sync():
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def run_on_main(fn, *args, **kwargs):
    """Runs fn on rank 0, the others wait until it is done."""
    if is_main():
        fn(*args, **kwargs)
    sync()
