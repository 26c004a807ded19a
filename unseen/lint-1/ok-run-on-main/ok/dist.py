from functools import wraps

import torch.distributed as dist


def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0


def main_only(fn):
    @wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs) if is_main() else None

    return inner


def sync():
    if dist.is_initialized():
        dist.barrier()


def run_on_main(fn, *args, post=None, post_on_main=False):
    """fn on rank 0; then post on the others (or on all), with everybody waiting in between."""
    result = main_only(fn)(*args)
    sync()
    if post is not None:
        if post_on_main:
            post()
        else:
            if not is_main():
                post()
            sync()
    return result
