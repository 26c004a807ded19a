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
        source = iter(data_iter)
        while True:
            micro_batch = next(source, None)
            has_data = torch.tensor(micro_batch is not None, dtype=torch.int32, device="cuda")
            dist.all_reduce(has_data, op=dist.ReduceOp.MIN)
            if has_data.item() == 0:
                break
            out = model(micro_batch["tokens"])
            total += loss_fn(out, micro_batch["labels"]).sum()
            count += micro_batch["labels"].numel()
    dist.all_reduce(total)
    dist.all_reduce(count)
    return (total / count).item()
