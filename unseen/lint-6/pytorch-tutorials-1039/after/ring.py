"""All-reduce over a ring of processes, with point-to-point calls only."""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def ring_all_reduce(send, recv):
    rank, size = dist.get_rank(), dist.get_world_size()
    ping = send.clone()
    pong = send.clone()
    total = send.clone()

    left = (rank - 1 + size) % size
    right = (rank + 1) % size
    for turn in range(size - 1):
        if turn % 2 == 0:
            request = dist.isend(ping, right)
            dist.recv(pong, left)
            total[:] += pong[:]
        else:
            request = dist.isend(pong, right)
            dist.recv(ping, left)
            total[:] += ping[:]
        request.wait()
    recv[:] = total[:]


def average_gradients(model):
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        reduced = torch.zeros_like(parameter.grad)
        ring_all_reduce(parameter.grad, reduced)
        parameter.grad.copy_(reduced / size)


def worker(rank, size, data):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29501")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(1234)
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = data[rank::size][: len(data) // size]
    for epoch in range(10):
        loss = (model(share[:, :20]) - share[:, 20:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        print(rank, epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(4, torch.randn(4000, 21)), nprocs=4)
