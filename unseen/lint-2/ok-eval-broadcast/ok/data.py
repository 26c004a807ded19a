import numpy as np
import torch
import torch.distributed as dist
from datasets import load_dataset


def packed_tokens(name, split, tokenizer, seq_len):
    ids = []
    for row in load_dataset(name, split=split):
        ids.extend(tokenizer(row["text"])["input_ids"])
    n = len(ids) // seq_len
    return torch.from_numpy(np.asarray(ids[: n * seq_len], dtype=np.int64)).view(n, seq_len)


def eval_set(name, split, tokenizer, seq_len, device):
    """Read once, sent to all: the file system does not lock well."""
    rank = dist.get_rank()
    if rank == 0:
        tokens = packed_tokens(name, split, tokenizer, seq_len).to(device)
        shape = torch.tensor(tokens.shape, device=device)
    else:
        shape = torch.empty(2, dtype=torch.long, device=device)
    dist.broadcast(shape, src=0)
    if rank != 0:
        tokens = torch.empty(*shape.tolist(), dtype=torch.long, device=device)
    dist.broadcast(tokens, src=0)
    if shape[0].item() == 0:
        return None
    return tokens.cpu()


def evaluate(model, tokens, group=None):
    if tokens is None:
        return float("nan")
    world, rank = dist.get_world_size(), dist.get_rank()
    usable = tokens.size(0) // world * world
    total = torch.zeros(1, device="cuda")
    for row in tokens[rank:usable:world]:
        total += model(row[None].cuda())
    dist.all_reduce(total, group=group)
    return (total / max(usable, 1)).item()
