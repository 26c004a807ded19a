import torch
import torch.distributed as dist


def active():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def all_gather_pairs(anchors, positives):
    """Embeddings of all replicas; the gradient flows through those of this one only."""
    if not active():
        return anchors, positives
    count, rank = dist.get_world_size(), dist.get_rank()
    anchor_list = [torch.empty_like(anchors) for _ in range(count)]
    positive_list = [torch.empty_like(positives) for _ in range(count)]
    dist.all_gather(anchor_list, anchors.contiguous())
    dist.all_gather(positive_list, positives.contiguous())
    anchor_list[rank] = anchors
    positive_list[rank] = positives
    return torch.cat(anchor_list), torch.cat(positive_list)
