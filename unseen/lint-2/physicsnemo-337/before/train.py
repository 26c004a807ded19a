import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from fields import YearlyFields


def train(model, paths, epochs):
    rank, world = dist.get_rank(), dist.get_world_size()
    data = YearlyFields(paths, rank=rank, world=world)
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=0)
    model = DistributedDataParallel(model.cuda())
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(epochs):
        data.epoch = epoch
        for x, y in loader:
            loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
        dist.barrier()
