import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def build(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def evaluate(model, data_iter, loss_fn):
    total = torch.tensor(0.0, device="cuda")
    count = torch.tensor(0, device="cuda")
    with torch.no_grad():
        for micro_batch in data_iter:
            out = model(micro_batch["tokens"])
            total += loss_fn(out, micro_batch["labels"]).sum()
            count += micro_batch["labels"].numel()
    dist.all_reduce(total)
    dist.all_reduce(count)
    return (total / count).item()
