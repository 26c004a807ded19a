import os

import horovod.torch as hvd
import torch


def latest(path):
    for e in range(100, 0, -1):
        if os.path.exists(f"{path}/c{e}.pt"):
            return e
    return 0


def main(model, loader, path, epochs):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    start = latest(path) if hvd.rank() == 0 else 0
    start = hvd.broadcast(torch.tensor(start), root_rank=0, name="start").item()
    if start > 0 and hvd.rank() == 0:
        model.load_state_dict(torch.load(f"{path}/c{start}.pt"))
    opt = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(opt, root_rank=0)
    opt = hvd.DistributedOptimizer(opt, named_parameters=model.named_parameters())
    for epoch in range(start, epochs):
        for x, y in loader(hvd.rank(), hvd.size()):  # of different lengths
            opt.zero_grad()
            torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            opt.step()
        hvd.join()
        if hvd.rank() == 0:
            torch.save(model.state_dict(), f"{path}/c{epoch + 1}.pt")
