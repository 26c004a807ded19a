import functools

import torch
import torch.distributed as dist


def one_rank_only(rank=0, with_barrier=False):
    def deco(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            ret = None
            if dist.get_rank() == rank:
                ret = fn(*args, **kwargs)
            if with_barrier:
                dist.barrier()
            return ret

        return wrapper

    return deco


@one_rank_only(with_barrier=True)
def write(path, model):
    torch.save(model.state_dict(), path)


@one_rank_only(rank=1)
def tell(msg):
    print(msg, flush=True)


def after_epoch(engine, model):
    if engine.epoch % engine.save_every == 0:
        write(f"{engine.out}/m{engine.epoch}.pt", model.module)
    tell(f"epoch {engine.epoch} over")
    loss = engine.loss_sum / engine.batches
    dist.all_reduce(loss)
    return loss / dist.get_world_size()
