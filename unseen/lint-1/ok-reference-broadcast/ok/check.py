import torch
import torch.distributed as dist


def assert_replicas_equal(model, dp_group, tol=0.0):
    """Every replica compares its parameters with those of the first of the group."""
    me = dist.get_rank(dp_group)
    src = dist.get_global_rank(dp_group, 0)
    for name, p in sorted(model.named_parameters()):
        t = p.detach()
        if me == 0:
            ref = t.contiguous()
        else:
            ref = torch.empty_like(t, memory_format=torch.contiguous_format)
        dist.broadcast(ref, src=src, group=dp_group)
        if me == 0:
            continue
        diff = (ref - t).abs().max().item()
        if diff > tol:
            print(f"{name} differs by {diff} on replica {me}", flush=True)
    dist.barrier(group=dp_group)


def tie(a, b, group, first, last):
    """Embedding and head live on the first and the last stage only."""
    if dist.get_rank() not in (first, last):
        return
    w = a.weight if dist.get_rank() == first else b.weight
    dist.all_reduce(w.grad, group=group)
