"""Photos of feathers without labels: two views of each photo must get the same code (SwAV). Codes are balanced over the photos of all processes, old
projections wait in a queue. Gradients are averaged by hand, in buckets. One process for each GPU, started by a shell loop."""
import argparse
import datetime
import logging
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("feathers")


class Photos:
    """96 x 96 photos of a process; kept as bytes, drawn in batches."""

    def __init__(self, rank, batch):
        self.rng, self.batch = np.random.default_rng(700 + rank), batch
        kinds = np.random.default_rng(7).integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
        self.plain = kinds.repeat(8, 1).repeat(8, 2)

    def draw(self):
        photos = self.plain[self.rng.integers(0, 40, self.batch)]
        noise = self.rng.integers(0, 48, (1, 96, 96, 3), dtype=np.uint8)
        return photos // 2 + noise

    def __iter__(self):
        while True:
            yield torch.from_numpy(self.draw())


def view(photos, generator):
    """A random view of a batch, on the GPU: shift, flip, colour, noise."""
    x = photos.permute(0, 3, 1, 2).float() / 127.5 - 1
    dy, dx = torch.randint(0, 96, (2,), generator=generator).tolist()
    x = x.roll((dy, dx), (2, 3))
    if torch.rand((), generator=generator) < 0.5:
        x = x.flip(3)
    tint = 1 + 0.4 * torch.randn(len(x), 3, 1, 1, device=x.device)
    return (x * tint + 0.2 * torch.randn_like(x)).contiguous(memory_format=torch.channels_last)


def layer(inside, outside, stride=1):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.SiLU())


class Net(nn.Module):
    def __init__(self, width, size, prototypes):
        super().__init__()
        w = width
        self.backbone = nn.Sequential(layer(3, w, 2), layer(w, w), layer(w, w), layer(w, 2 * w, 2), layer(2 * w, 2 * w), layer(2 * w, 2 * w),
                                      layer(2 * w, 4 * w, 2), layer(4 * w, 4 * w), layer(4 * w, 4 * w), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(4 * w, 1024), nn.GELU(), nn.Linear(1024, size))
        self.prototypes = nn.Linear(size, prototypes, bias=False)

    def forward(self, x):
        z = F.normalize(self.project(self.backbone(x)).float(), dim=1)
        return z, self.prototypes(z)

    @torch.no_grad()
    def unit(self):
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))


@torch.no_grad()
def codes(scores, rounds, world, sharpness=0.05):
    """Sinkhorn-Knopp over the photos of all processes."""
    q = torch.exp((scores - scores.max()) / sharpness).t()
    total = q.sum()
    dist.all_reduce(total)
    q /= total
    for _ in range(rounds):
        rows = q.sum(1, keepdim=True)
        dist.all_reduce(rows)
        q /= rows * len(q)
        q /= q.sum(0, keepdim=True) * q.shape[1] * world
    return (q * q.shape[1] * world).t()


class Queue:
    """Projections of the last batches of all processes."""

    def __init__(self, length, size, world, device):
        self.rows, self.filled, self.world = torch.zeros(length, size, device=device), 0, world

    @torch.no_grad()
    def push(self, z):
        every = z.new_empty(self.world * len(z), z.shape[1])
        dist.all_gather_into_tensor(every, z.contiguous())
        self.rows = torch.cat([every, self.rows[:-len(every)]])
        self.filled = min(len(self.rows), self.filled + len(every))


class Buckets:
    """Averages gradients, some megabytes at a time."""

    def __init__(self, weights, megabytes, world):
        self.world, self.groups, now, size = world, [], [], 0
        for w in reversed(list(weights)):
            now.append(w)
            size += w.numel() * 4
            if size > megabytes * 2 ** 20:
                self.groups.append(now)
                now, size = [], 0
        if now:
            self.groups.append(now)

    def reduce(self):
        waiting = []
        for group in self.groups:
            flat = torch.cat([w.grad.flatten() for w in group])
            waiting.append((group, flat, dist.all_reduce(flat, op=dist.ReduceOp.SUM, async_op=True)))
        for group, flat, work in waiting:
            work.wait()
            flat /= self.world
            at = 0
            for w in group:
                w.grad.copy_(flat[at:at + w.numel()].view_as(w))
                at += w.numel()


def learn(net, photos, queue, o, step, world, generator):
    """Loss of one batch: each view predicts the code of the other."""
    with torch.autocast(photos.device.type, torch.bfloat16):
        first, scores_a = net(view(photos, generator))
        second, scores_b = net(view(photos, generator))
    loss = 0.0
    for z, own, other in ((first, scores_a, scores_b), (second, scores_b, scores_a)):
        scores = own.detach().float()
        if step > o.queue_from and queue.filled:
            old = queue.rows[:queue.filled] @ net.prototypes.weight.detach().t()
            scores = torch.cat([scores, old])
        target = codes(scores, o.rounds, world)[:len(own)]
        loss = loss - (target * F.log_softmax(other.float() / o.heat, dim=1)).sum(1).mean() / 2
    queue.push(first.detach())
    return loss


def usage(net, photos, rank, world):
    """How many prototypes are in use, as each process sees it."""
    with torch.no_grad():
        best = net(photos.permute(0, 3, 1, 2).float() / 127.5 - 1)[1].argmax(1)
    seen = [None] * world
    dist.all_gather_object(seen, {"rank": rank, "used": len(best.unique())})
    return [s["used"] for s in seen]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--width", type=int, default=96)
    ap.add_argument("--size", type=int, default=128)
    ap.add_argument("--prototypes", type=int, default=512)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--heat", type=float, default=0.1)
    ap.add_argument("--queue", type=int, default=4096)
    ap.add_argument("--queue-from", type=int, default=100)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--every", type=int, default=10)
    ap.add_argument("--look", type=int, default=100)
    ap.add_argument("--save", type=int, default=300)
    ap.add_argument("--minutes", type=float, default=1.4)
    ap.add_argument("--timeout", type=int, default=900)
    o = ap.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[%(asctime)s] rank {rank}: %(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=o.timeout))
    torch.manual_seed(2)
    net = Net(o.width, o.size, o.prototypes).to(device)
    for w in net.parameters():
        dist.broadcast(w.data, 0)
    net = net.to(memory_format=torch.channels_last)
    net.unit()
    torch.manual_seed(20 + rank)
    optimizer = torch.optim.AdamW(net.parameters(), o.lr, weight_decay=0.01)
    buckets, queue = Buckets(net.parameters(), 4, world), Queue(o.queue, o.size, world, device)
    generator = torch.Generator().manual_seed(30 + rank)
    log.info("%d of %d on %s, %.1fM weights, %d buckets", rank, world, device, sum(w.numel() for w in net.parameters()) / 1e6, len(buckets.groups))
    began = time.time()
    for step, photos in enumerate(Photos(rank, o.batch), 1):
        photos = photos.to(device)
        loss = learn(net, photos, queue, o, step, world, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        buckets.reduce()
        optimizer.step()
        net.unit()
        if step % o.every == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                log.info("step %d loss %.4f %.1f s", step, mean.item() / world, time.time() - began)
        if step % o.look == 0:
            used = usage(net, photos, rank, world)
            log.info("step %d prototypes in use %s, weights %.6f", step, used, sum(w.detach().double().abs().sum().item() for w in net.parameters()))
        if step % o.save == 0:
            if rank == 0:
                torch.save({"net": net.state_dict(), "step": step}, "feathers.pt")
                log.info("step %d saved", step)
            dist.barrier()
        if step % 20 == 0:
            end = torch.tensor([time.time() - began > 60 * o.minutes], dtype=torch.int32, device=device)
            dist.broadcast(end, 0)
            if end.item():
                break
    log.info("ends after %d steps, %.1f s", step, time.time() - began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
