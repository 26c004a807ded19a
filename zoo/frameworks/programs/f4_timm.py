"""Image classification with a model of timm, DDP and gradient accumulation."""
import argparse
import contextlib
import logging
import os
import time
from datetime import timedelta

import timm
import torch
import torch.distributed as dist
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, accuracy, random_seed, reduce_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

_logger = logging.getLogger("train")


class Flowers(Dataset):
    def __init__(self, n, size, classes, offset=0):
        self.n, self.size, self.classes, self.offset = n, size, classes, offset

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.offset + i)
        label = i % self.classes
        image = torch.rand(3, self.size, self.size, generator=g)
        image[label % 3, :: 2 + label // 3] += 0.5
        return image, label


def validate(model, loader, device, world):
    losses, top1 = AverageMeter(), AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            output = model(images)
            loss = torch.nn.functional.cross_entropy(output, target)
            acc1 = accuracy(output, target)[0]
            losses.update(reduce_tensor(loss.data, world).item(), len(target))
            top1.update(reduce_tensor(acc1, world).item(), len(target))
    model.train()
    return losses.avg, top1.avg


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="convnext_pico")
    parser.add_argument("--img-size", type=int, default=128)
    parser.add_argument("--num-classes", type=int, default=24)
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train-images", type=int, default=7680)
    parser.add_argument("--val-images", type=int, default=1024)
    parser.add_argument("--grad-accum-steps", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("-j", "--workers", type=int, default=3)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--torchcompile", action="store_true")
    parser.add_argument("--dist-timeout", type=int, default=1800)
    args = parser.parse_args()
    rank, local, world = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.dist_timeout))
    _logger.info(f"Training in distributed mode with {world} processes, 1 device per process. Process {rank}, device {device}.")
    random_seed(42, rank)
    model = timm.create_model(args.model, pretrained=False, num_classes=args.num_classes, drop_path_rate=0.1).to(device)
    _logger.info(f"Model {args.model} created, param count: {sum(p.numel() for p in model.parameters())}")
    optimizer = create_optimizer_v2(model, opt="adamw", lr=args.lr, weight_decay=0.05)
    scheduler = CosineLRScheduler(optimizer, t_initial=args.epochs, warmup_t=1, warmup_lr_init=1e-5)
    ddp = DistributedDataParallel(model, device_ids=[local] if cuda else None)
    forward = torch.compile(ddp) if args.torchcompile else ddp
    train_set = Flowers(args.train_images, args.img_size, args.num_classes)
    val_set = Flowers(args.val_images, args.img_size, args.num_classes, offset=1 << 20)
    sampler = DistributedSampler(train_set, world, rank)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.workers, pin_memory=cuda, drop_last=True)
    loader_eval = DataLoader(val_set, args.batch_size, sampler=DistributedSampler(val_set, world, rank, shuffle=False), num_workers=args.workers, pin_memory=cuda)
    accum_steps = args.grad_accum_steps
    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        losses, data_time, update_time = AverageMeter(), AverageMeter(), AverageMeter()
        end = time.time()
        for batch_idx, (images, target) in enumerate(loader):
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            data_time.update(time.time() - end)
            need_update = (batch_idx + 1) % accum_steps == 0
            with contextlib.nullcontext() if need_update else ddp.no_sync():
                loss = torch.nn.functional.cross_entropy(forward(images), target, label_smoothing=0.1)
                (loss / accum_steps).backward()
            if need_update:
                torch.nn.utils.clip_grad_norm_(ddp.parameters(), 5.0)
                optimizer.step()
                optimizer.zero_grad()
            update_time.update(time.time() - end)
            if batch_idx % args.log_interval == 0:
                losses.update(reduce_tensor(loss.data, world).item(), len(target))
                _logger.info(f"Train: {epoch} [{batch_idx:>4d}/{len(loader)} ({100 * batch_idx / (len(loader) - 1):>3.0f}%)]  Loss: {losses.val:#.3g} ({losses.avg:#.3g})"
                             f"  Time: {update_time.val:.3f}s  LR: {optimizer.param_groups[0]['lr']:.3e}  Data: {data_time.val:.3f} ({data_time.avg:.3f})")
            end = time.time()
        val_loss, top1 = validate(ddp, loader_eval, device, world)
        _logger.info(f"Test: epoch {epoch}  Loss: {val_loss:.3f}  Acc@1: {top1:.3f}")
        if rank == 0 and top1 >= best:
            best = top1
            torch.save({"epoch": epoch, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, "model_best.pth.tar")
        dist.barrier()
        scheduler.step(epoch + 1)
    _logger.info(f"*** Best metric: {best}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
