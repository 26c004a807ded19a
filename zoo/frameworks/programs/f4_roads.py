"""Semantic segmentation in the manner of torchvision's references: SyncBatchNorm, MetricLogger, a confusion matrix."""
import argparse
import datetime
import math
import os
import sys
import time
from collections import defaultdict, deque

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision.models.segmentation import lraspp_mobilenet_v3_large
from torchvision.transforms import v2

CLASSES = 6


class Roads(Dataset):
    """Bands of random widths on noise."""

    def __init__(self, n, size, offset=0):
        self.n, self.size, self.offset = n, size, offset
        self.augment = v2.Compose([v2.ToDtype(torch.float32), v2.Normalize([0.5] * 3, [0.25] * 3)])

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.offset + i)
        mask = torch.zeros(self.size, self.size, dtype=torch.int64)
        for label in torch.randint(1, CLASSES, (3,), generator=g).tolist():
            at = int(torch.randint(0, self.size - 24, (), generator=g))
            mask[:, at:at + 8 + 2 * label] = label
        image = torch.rand(3, self.size, self.size, generator=g) + mask / CLASSES
        return self.augment(image), mask


class SmoothedValue:
    def __init__(self, window_size=20):
        self.deque, self.total, self.count = deque(maxlen=window_size), 0.0, 0

    def update(self, value):
        self.deque.append(value)
        self.total, self.count = self.total + value, self.count + 1

    def synchronize_between_processes(self, device):
        t = torch.tensor([self.count, self.total], dtype=torch.float32, device=device)
        dist.barrier()
        dist.all_reduce(t)
        self.count, self.total = int(t[0].item()), t[1].item()

    def __str__(self):
        return f"{sorted(self.deque)[len(self.deque) // 2]:.4f} ({self.total / self.count:.4f})"


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(float(value))

    def log_every(self, iterable, print_freq, header):
        times, end = SmoothedValue(), time.time()
        for i, obj in enumerate(iterable):
            yield obj
            times.update(time.time() - end)
            if i % print_freq == 0:
                left = datetime.timedelta(seconds=int(times.total / times.count * (len(iterable) - i)))
                meters = "  ".join(f"{name}: {meter}" for name, meter in self.meters.items())
                print_main(f"{header}  [{i:4d}/{len(iterable)}]  eta: {left}  {meters}  time: {times}")
            end = time.time()


class ConfusionMatrix:
    def __init__(self, device):
        self.mat = torch.zeros(CLASSES, CLASSES, dtype=torch.int64, device=device)

    def update(self, target, guess):
        self.mat += torch.bincount(CLASSES * target.flatten() + guess.flatten(), minlength=CLASSES**2).reshape(CLASSES, CLASSES)

    def reduce_from_all_processes(self):
        dist.barrier()
        dist.all_reduce(self.mat)

    def mean_iou(self):
        hit = self.mat.diag().double()
        return (hit / (self.mat.sum(0) + self.mat.sum(1) - hit).clamp(min=1)).mean().item()


def is_main_process():
    return dist.get_rank() == 0


def print_main(*words):
    if is_main_process():
        print(*words, flush=True)


def criterion(output, target):
    return nn.functional.cross_entropy(output["out"], target)


def train_one_epoch(model, optimizer, loader, scheduler, device, epoch, print_freq):
    model.train()
    logger = MetricLogger()
    for image, target in logger.log_every(loader, print_freq, f"Epoch: [{epoch}]"):
        image, target = image.to(device), target.to(device)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training", flush=True)
            sys.exit(1)
        logger.update(loss=loss_value, lr=optimizer.param_groups[0]["lr"])
    for meter in logger.meters.values():
        meter.synchronize_between_processes(device)


@torch.inference_mode()
def evaluate(model, loader, device):
    model.eval()
    confmat = ConfusionMatrix(device)
    for image, target in loader:
        output = model(image.to(device))["out"]
        confmat.update(target.to(device), output.argmax(1))
    confmat.reduce_from_all_processes()
    return confmat.mean_iou()


def main(args):
    gpu = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", gpu) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(gpu)
    print(f"| distributed init (rank {os.environ['RANK']}): env://", flush=True)
    dist.init_process_group("nccl" if cuda else "gloo", init_method="env://", timeout=datetime.timedelta(seconds=args.timeout))
    dist.barrier()
    print_main(args)
    rank = dist.get_rank()
    dataset, dataset_test = Roads(args.images, args.size), Roads(args.test_images, args.size, 1 << 24)
    train_sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, args.batch, sampler=train_sampler, num_workers=args.workers, drop_last=True)
    loader_test = DataLoader(dataset_test, args.batch, sampler=DistributedSampler(dataset_test, shuffle=False), num_workers=args.workers)
    torch.manual_seed(0)
    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=CLASSES).to(device)
    if cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[gpu] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, len(loader) * args.epochs, 0.9)
    start = time.time()
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train_one_epoch(model, optimizer, loader, scheduler, device, epoch, args.print_freq)
        iou = evaluate(model, loader_test, device)
        print_main(f"epoch {epoch} mean IoU {100 * iou:.1f}")
        if is_main_process():
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"model_{epoch}.pth")
    print_main(f"Training time {datetime.timedelta(seconds=int(time.time() - start))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1280)
    parser.add_argument("--test-images", type=int, default=128)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--print-freq", type=int, default=10)
    parser.add_argument("--timeout", type=int, default=1800)
    main(parser.parse_args())
