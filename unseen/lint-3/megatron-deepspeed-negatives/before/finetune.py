import torch
import torch.distributed as dist
import torch.nn.functional as F


def gather(x, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    parts[dist.get_rank(group)] = x
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts)


def retrieval_loss(model, batch, group):
    query, context, negatives = model(batch["query"]), model(batch["context"]), batch["negatives"]
    scores = query @ gather(torch.cat([context, model(negatives)]), group).t()
    return F.cross_entropy(scores, torch.arange(query.size(0), device=query.device))
