import torch
import torch.distributed as dist


@torch.no_grad()
def validate(model, loader, loss_fn, group):
    """FSDP model; the loaders may be of different lengths."""
    model.eval()
    it = iter(loader)
    total = torch.zeros(2, device="cuda")
    bad = torch.zeros(1, device="cuda")
    while True:
        try:
            batch = next(it)
            more = torch.ones(1, device="cuda")
        except StopIteration:
            batch, more = None, torch.zeros(1, device="cuda")
        dist.all_reduce(more, op=dist.ReduceOp.MIN)
        if more.item() == 0:
            break
        loss, n = loss_fn(model(batch["ids"].cuda()), batch["labels"].cuda())
        if torch.isnan(loss):
            bad += 1
            continue
        total += torch.stack([loss * n, n])
    dist.all_reduce(total, group=group)
    dist.all_reduce(bad)
    if bad.item() and dist.get_rank() == 0:
        print(f"{int(bad.item())} batches with NaN skipped")
    model.train()
    return (total[0] / total[1].clamp(min=1)).item()
