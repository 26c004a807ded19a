import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def shard(model):
    fully_shard(model)
    return model


def full(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def save_optimizer_state(optimizer, path):
    state = {}
    for index, moments in optimizer.state_dict()["state"].items():
        state[index] = {name: full(value).cpu() for name, value in moments.items()}
    torch.save(state, path)


def train(model, optimizer, loader, path):
    for step, batch in enumerate(loader):
        model(batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        save_optimizer_state(optimizer, path)
    dist.barrier()
