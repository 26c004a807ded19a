import torch
import torch.distributed as dist
import torch.nn.functional as F


def agree_and_pad(x, group):
    size = torch.tensor([x.size(0)], device=x.device)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    largest = int(torch.cat(sizes).max())
    return F.pad(x, (0, 0, 0, largest - x.size(0)))


def prepare(batch, group):
    query = batch["query"]
    local = query.size(0)
    negatives = batch["negatives"]
    if negatives is not None:
        negatives = agree_and_pad(negatives, group)
    return query, negatives
