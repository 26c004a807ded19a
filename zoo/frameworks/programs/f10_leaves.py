#!/usr/bin/env python
# Herbarium: species of leaves. ResNet-ish net, DDP, fp16. Started from the PyTorch ImageNet example and cut down.
#   torchrun --nproc-per-node 2 train.py -b 128
import argparse
import csv
import datetime
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument('-b', '--batch-size', default=128, type=int)
parser.add_argument('-j', '--workers', default=6, type=int)
parser.add_argument('--width', default=96, type=int)
parser.add_argument('--images', default=51200, type=int, help='images per epoch')
parser.add_argument('--val-images', default=4096, type=int)
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--wd', default=1e-4, type=float)
parser.add_argument('--init-scale', default=2.0 ** 14, type=float)
parser.add_argument('--minutes', default=1.2, type=float, help='no new epoch after this time')
parser.add_argument('-p', '--print-freq', default=25, type=int)
parser.add_argument('--timeout', default=600, type=int)

SPECIES = 120


class Leaves(Dataset):
    """Scans are kept in memory; a crop, a flip and some scanner noise for each view."""

    def __init__(self, n, train):
        self.n, self.train = n, train
        rng = np.random.default_rng(0)
        coarse = rng.integers(40, 215, (SPECIES, 3, 10, 10))
        self.scans = coarse.repeat(16, 2).repeat(16, 3).astype(np.uint8)

    def __len__(self):
        return self.n

    def load(self, i):
        return self.scans[i * 7919 % SPECIES], i * 7919 % SPECIES

    def __getitem__(self, i):
        img, label = self.load(i)
        rng = np.random.default_rng(i if not self.train else None)
        y, x = rng.integers(0, 32, 2) if self.train else (16, 16)
        img = img[:, y:y + 128, x:x + 128]
        if self.train and rng.random() < 0.5:
            img = img[:, :, ::-1]
        img = img + rng.integers(-20, 20, (1, 128, 128), dtype=np.int16)
        return torch.from_numpy(img.clip(0, 255).astype(np.uint8)), label


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout or stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.down(x))


def build(width):
    layers, c = [nn.Conv2d(3, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
    for i, w in enumerate((width, 2 * width, 4 * width, 4 * width)):
        layers += [Block(c, w, 1 + (i > 0)), Block(w, w, 1)]
        c = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, SPECIES))


class AverageMeter:
    def __init__(self, name, fmt):
        self.name, self.fmt, self.val, self.sum, self.count = name, fmt, 0.0, 0.0, 0

    def update(self, val, n=1):
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n

    def __str__(self):
        return ('{} {:' + self.fmt + '} ({:' + self.fmt + '})').format(self.name, self.val, self.sum / max(1, self.count))


def prepare(images, device):
    images = images.to(device, non_blocking=True).float().div_(255).sub_(0.5)
    return images.contiguous(memory_format=torch.channels_last)


def train(loader, model, optimizer, scaler, epoch, args, rank, device):
    batch_time, data_time = AverageMeter('Time', '6.3f'), AverageMeter('Data', '6.3f')
    losses, top1 = AverageMeter('Loss', '.4e'), AverageMeter('Acc@1', '6.2f')
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(loader):
        data_time.update(time.time() - end)
        images, target = prepare(images, device), target.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.float16, enabled=device.type == 'cuda'):
            output = model(images)
            loss = F.cross_entropy(output, target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if rank == 0 and scaler.get_scale() < before:
            print('Gradient overflow. Skipping step, loss scaler reducing loss scale to {}'.format(scaler.get_scale()), flush=True)
        batch_time.update(time.time() - end)
        if i % args.print_freq == 0 and rank == 0:
            losses.update(loss.item(), len(images))
            top1.update((output.argmax(1) == target).float().mean().item() * 100, len(images))
            print('Epoch: [{}][{:4d}/{}]\t'.format(epoch, i, len(loader)) + '\t'.join(map(str, (batch_time, data_time, losses, top1))), flush=True)
        end = time.time()


@torch.no_grad()
def validate(loader, model, device):
    model.eval()
    seen = torch.zeros(2, device=device)
    for images, target in loader:
        images, target = prepare(images, device), target.to(device)
        seen[0] += (model(images).argmax(1) == target).sum()
        seen[1] += len(target)
    dist.all_reduce(seen)
    return 100 * (seen[0] / seen[1]).item()


def main():
    args = parser.parse_args()
    rank, local, world = int(os.environ['RANK']), int(os.environ['LOCAL_RANK']), int(os.environ['WORLD_SIZE'])
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(local)
        torch.backends.cudnn.benchmark = True
    device = torch.device('cuda', local) if use_cuda else torch.device('cpu')
    dist.init_process_group('nccl' if use_cuda else 'gloo', timeout=datetime.timedelta(seconds=args.timeout))
    torch.manual_seed(rank)
    print('Use GPU: {} for training (rank {} of {})'.format(local, rank, world), flush=True)
    model = build(args.width).to(device, memory_format=torch.channels_last)
    model = DistributedDataParallel(model, device_ids=[local] if use_cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=args.wd)
    scaler = torch.amp.GradScaler(device.type, init_scale=args.init_scale, growth_interval=200, enabled=use_cuda)
    train_set, val_set = Leaves(args.images, True), Leaves(args.val_images, False)
    train_sampler = DistributedSampler(train_set, drop_last=True)
    common = dict(batch_size=args.batch_size, num_workers=args.workers, pin_memory=use_cuda, persistent_workers=args.workers > 0)
    train_loader = DataLoader(train_set, sampler=train_sampler, drop_last=True, **common)
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False), **common)
    start, epoch, best = time.time(), 0, 0.0
    while True:
        train_sampler.set_epoch(epoch)
        for group in optimizer.param_groups:
            group['lr'] = args.lr * 0.5 * (1 + math.cos(math.pi * min(epoch, 29) / 30))
        train(train_loader, model, optimizer, scaler, epoch, args, rank, device)
        acc1 = validate(val_loader, model, device)
        norm = math.sqrt(sum(p.detach().double().square().sum().item() for p in model.parameters()))
        print('[rank {}] epoch {} |w| = {:.6f}'.format(rank, epoch, norm), flush=True)
        if rank == 0:
            print(' * Acc@1 {:.3f}  best {:.3f}  ({:.1f} s)'.format(acc1, max(best, acc1), time.time() - start), flush=True)
            with open('summary.csv', 'a') as f:
                csv.writer(f).writerow([epoch, acc1, optimizer.param_groups[0]['lr']])
            torch.save({'epoch': epoch, 'state_dict': model.module.state_dict(), 'optimizer': optimizer.state_dict()}, 'checkpoint.pth.tar')
        best, epoch = max(best, acc1), epoch + 1
        over = torch.tensor([time.time() - start > 60 * args.minutes], dtype=torch.int32, device=device)
        dist.broadcast(over, 0)
        if over.item():
            break
    print('rank {} done'.format(rank), flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
