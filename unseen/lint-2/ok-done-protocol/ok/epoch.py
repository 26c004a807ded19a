import torch
import torch.distributed as dist


def train_epoch(model, opt, loader, distributed, device):
    """The loaders may be of different lengths: all stop when the first has no more."""
    finished_early = False
    loss_sum, n = 0.0, 0
    for batch in loader:
        if distributed:
            done = torch.tensor(0, device=device)
            dist.all_reduce(done, op=dist.ReduceOp.SUM)
            if done.item() > 0:
                finished_early = True
                break
        opt.zero_grad()
        loss = model(batch.to(device))
        loss.backward()
        opt.step()
        loss_sum += loss.item()
        n += 1
    if distributed and not finished_early:
        # tells the others, who ask at their next batch
        done = torch.tensor(1, device=device)
        dist.all_reduce(done, op=dist.ReduceOp.SUM)
    if distributed:
        dist.barrier()
    return loss_sum / max(n, 1)
