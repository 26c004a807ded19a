import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from scaler import ShardedScaler


def build(generator, critic, n_critic):
    """The first ranks train the generator, the last n_critic ranks the critic, at their own pace."""
    world, rank = dist.get_world_size(), dist.get_rank()
    g = dist.new_group(list(range(world - n_critic)))
    c = dist.new_group(list(range(world - n_critic, world)))
    is_critic = rank >= world - n_critic
    model, group = (critic, c) if is_critic else (generator, g)
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=1e-4)
    return model, opt, ShardedScaler(), group, is_critic


def step(model, opt, scaler, group, batch):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(batch)
    scaler.scale(loss).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
