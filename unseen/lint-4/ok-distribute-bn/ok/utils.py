import torch
import torch.distributed as dist


def distribute_bn(model, world_size, reduce=False):
    for name, buffer in model.named_buffers():
        if "running_mean" in name or "running_var" in name:
            if reduce:
                dist.all_reduce(buffer, op=dist.ReduceOp.SUM)
                buffer /= float(world_size)
            else:
                dist.broadcast(buffer, 0)
