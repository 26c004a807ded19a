import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

LOCAL_RANK = int(os.environ["LOCAL_RANK"])
RANK = int(os.environ["RANK"])


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.best_epoch = 0.0, 0
        self.patience = patience

    def __call__(self, epoch, fitness):
        if fitness >= self.best:
            self.best, self.best_epoch = fitness, epoch
        return epoch - self.best_epoch >= self.patience


def train(model, dataset, evaluate, opt):
    torch.cuda.set_device(LOCAL_RANK)
    device = torch.device("cuda", LOCAL_RANK)
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=opt.batch_size, sampler=sampler)
    model = DistributedDataParallel(model.to(device), device_ids=[LOCAL_RANK])
    optimizer = torch.optim.SGD(model.parameters(), lr=opt.lr, momentum=0.9)
    stopper, stop = EarlyStopping(opt.patience), False

    for epoch in range(opt.epochs):
        sampler.set_epoch(epoch)
        for images, targets in loader:
            loss = model(images.to(device), targets.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        if RANK == 0:
            fitness = evaluate(model.module)
            stop = stopper(epoch=epoch, fitness=fitness)
            if stopper.best_epoch == epoch:
                torch.save(model.module.state_dict(), opt.best)

        message = [stop if RANK == 0 else None]
        dist.broadcast_object_list(message, 0)
        if RANK != 0:
            stop = message[0]
        if stop:
            break

    dist.destroy_process_group()
