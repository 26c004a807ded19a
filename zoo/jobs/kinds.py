"""The kinds of job. Faults in the calls are where they would be in a real job: at a branch that depends on the rank.

NCCL does not check what ranks call. Two all_reduce calls of different sizes with the same protocol exchange their data, and the
job continues with wrong numbers. It stalls if the protocols differ. Hence the sizes: megabytes beside kilobytes."""

import torch
import torch.distributed as dist
from torch import nn

from jobs.loader import batches


def plain(job):
    """Gradients reduced by hand, three buckets at once, then the loss."""
    buckets = [kb * 256 for kb in job.settings.bucket_kb]
    for step in job.steps():
        grads = [torch.full((n,), 1e-3, device=job.device) for n in buckets]
        loss = compute(job)
        job.misfortune(step)
        reduce_gradients(job, step, grads)
        job.mean(loss)


def compute(job):
    a = torch.randn(512, 512, device=job.device)
    return (a @ a).square().mean()


def reduce_gradients(job, step, grads):
    plan = job.plan
    order = list(range(len(grads)))
    if plan.here("order", step, "reduce_gradients"):
        order.reverse()
    if plan.here("skip", step, "reduce_gradients"):
        order.pop(1)
    if plan.here("extra", step, "reduce_gradients"):
        dist.barrier()
    waiting = []
    for n in order:
        grad = grads[n]
        if n == 0 and plan.here("kind", step, "reduce_gradients"):
            whole = torch.empty(grad.numel() * job.world, device=job.device)
            waiting.append(dist.all_gather_into_tensor(whole, grad, async_op=True))
            continue
        if n == 0 and plan.here("shape", step, "reduce_gradients"):
            grad = grad[:256].clone()
        if n == 0 and plan.here("dtype", step, "reduce_gradients"):
            grad = grad.half()
        waiting.append(dist.all_reduce(grad, async_op=True))
    for work in waiting:
        work.wait()


def model(job):
    torch.manual_seed(0)
    width = job.settings.width
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(2)]).to(job.device)


def ddp(job):
    net = model(job)
    if job.settings.compile:
        net = torch.compile(net)
    ids = [job.device.index] if job.device.type == "cuda" else None
    net = nn.parallel.DistributedDataParallel(net, device_ids=ids, bucket_cap_mb=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    samples = iter(batches(job, job.settings.width))
    for step in job.steps():
        job.plan.here("data-loader", step, "next")
        batch = next(samples).to(job.device)
        loss = net(batch).square().mean()
        job.misfortune(step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log_loss(job, step, loss)


def fsdp(job):
    from torch.distributed.fsdp import fully_shard

    net = model(job)
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in job.steps():
        loss = net(torch.randn(32, job.settings.width, device=job.device)).square().mean()
        job.misfortune(step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log_loss(job, step, loss)


def log_loss(job, step, loss):
    """Once per step all ranks reduce the loss; a rank that skips this call or adds one breaks the order."""
    if job.plan.here("skip", step, "log_loss"):
        return
    if job.plan.here("extra", step, "log_loss"):
        dist.all_reduce(torch.ones(1 << 20, device=job.device))
    job.mean(loss.detach())


def mesh(job):
    """A 2x2 mesh: activations are reduced along one dimension, gradients along the other."""
    from torch.distributed.device_mesh import init_device_mesh

    grid = init_device_mesh(job.device.type, (job.world // 2, 2), mesh_dim_names=("dp", "tp"))
    tp, dp = grid.get_group("tp"), grid.get_group("dp")
    row, column = grid.get_coordinate()
    activations = torch.ones(1 << 18, device=job.device)
    grads = torch.ones(1 << 20, device=job.device)
    for step in job.steps():
        loss = compute(job)
        job.misfortune(step)
        along = [(tp, activations), (dp, grads)]
        if job.plan.everywhere("cycle", step, "mesh") and (row + column) % 2:
            along.reverse()
        for group, data in along:
            if group is tp and job.plan.here("skip", step, "mesh"):
                continue
            dist.all_reduce(data, group=group)
            data[0].item()
            data.fill_(1)
        job.mean(loss)


def pipeline(job):
    """Each stage sends its activations to the next one and its gradients back."""
    last = job.world - 1
    shape = (64, 1024)
    for step in job.steps():
        data = torch.ones(shape, device=job.device)
        job.misfortune(step)
        if job.rank > 0:
            dist.recv(data, job.rank - 1)
        compute(job)
        if job.rank < last:
            to = job.rank + 1
            if job.plan.here("wrong-peer", step, "pipeline"):
                to = job.rank + 2
            if not job.plan.here("missing-send", step, "pipeline"):
                dist.send(data, to)
        back = torch.ones(shape, device=job.device)
        if job.rank < last:
            dist.recv(back, job.rank + 1)
        if job.rank > 0:
            dist.send(back, job.rank - 1)
        job.mean(back.mean())


KINDS = {"plain": plain, "ddp": ddp, "fsdp": fsdp, "mesh": mesh, "pipeline": pipeline}
