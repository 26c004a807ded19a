import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Images(Dataset):
    def __init__(self, n, classes=10, seed=0):
        self.n, self.classes, self.seed = n, classes, seed

    def __len__(self):
        return self.n

    def load(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        label = i % self.classes
        image = torch.randn(3, 48, 48, generator=g) + label / self.classes
        return {"pixel_values": image, "label": label}

    def __getitem__(self, i):
        record = self.load(i)
        image = record["pixel_values"]
        if i % 2:
            image = image.flip(-1)
        return image, record["label"]


class ConvNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(128 * 16, 1024), nn.ReLU(), nn.Linear(1024, classes))

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    stats = torch.zeros(2, device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        prediction = model(images).argmax(1)
        stats[0] += (prediction == labels).sum()
        stats[1] += labels.numel()
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def reduce_metrics(metrics):
    for name in sorted(metrics):
        dist.all_reduce(metrics[name])
        metrics[name] /= dist.get_world_size()
    return metrics


def save_checkpoint(model, optimizer, epoch, path):
    os.makedirs(path, exist_ok=True)
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
               os.path.join(path, f"epoch_{epoch}.pt"))


def train_one_epoch(model, loader, optimizer, epoch, rank, device, args):
    model.train()
    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % args.log_interval == 0 and rank == 0:
            print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)
    confusion = torch.zeros(10, 10, device=device)
    metrics = {"loss": loss.detach().clone(), "confusion": confusion, "per_class": confusion.diagonal().clone(),
               "grad_norm": torch.stack([p.grad.norm() for p in model.parameters()])}
    return reduce_metrics(metrics)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--train-size", type=int, default=4096)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--output", default="checkpoints")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local_rank)
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    torch.manual_seed(1234 + rank)

    train_set, val_set = Images(args.train_size), Images(512, seed=7)
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True)
    train_loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.workers, pin_memory=cuda,
                              persistent_workers=args.workers > 0, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size, sampler=DistributedSampler(val_set, world_size, rank), num_workers=0)

    model = ConvNet().to(device)
    model = DDP(model, device_ids=[local_rank] if cuda else None)
    net = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    last = os.path.join(args.output, "last.pt")
    if args.resume and os.path.exists(last):
        state = torch.load(last, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    if rank == 0:
        print(f"world size {world_size}, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, "
              f"starting at epoch {first}", flush=True)

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        start = time.time()
        metrics = train_one_epoch(net, train_loader, optimizer, epoch, rank, device, args)
        accuracy = evaluate(net, val_loader, device)
        if rank == 0:
            print(f"epoch {epoch} done in {time.time() - start:.1f} s, train loss {metrics['loss'].item():.4f}, "
                  f"val acc {accuracy:.3f}", flush=True)
            save_checkpoint(model, optimizer, epoch, args.output)
            if args.resume:
                os.replace(os.path.join(args.output, f"epoch_{epoch}.pt"), last)
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
