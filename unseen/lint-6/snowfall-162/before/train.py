import argparse
import logging
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.tensorboard import SummaryWriter

from corpus import AsrCorpus
from model import TdnnLstm, mmi_objective


def batch_objective(model, batch, device):
    features = batch["inputs"].to(device)
    total, frames = mmi_objective(model(features), batch["supervisions"])
    return total, frames


@torch.no_grad()
def validation_objective(model, loader, device):
    model.eval()
    total, frames = 0.0, 0.0
    for batch in loader:
        value, count = batch_objective(model, batch, device)
        total += value.item()
        frames += count.item()
    model.train()
    return total, frames


def train_one_epoch(model, loader, valid_loader, optimizer, device, epoch, rank, writer):
    valid_average = None
    for index, batch in enumerate(loader):
        total, frames = batch_objective(model, batch, device)
        optimizer.zero_grad()
        (-total / frames).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 5.0)
        optimizer.step()
        if index % 200 == 199:
            value, count = validation_objective(model.module, valid_loader, device)
            valid_average = value / count
            if rank == 0:
                logging.info("epoch %d batch %d valid objf %.4f", epoch, index, valid_average)
                writer.add_scalar("valid/objf", valid_average, epoch * len(loader) + index)
    return valid_average


def run(rank, world_size, args):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    corpus = AsrCorpus(args.data)
    # single-cut samplers that give each rank the same number of batches of its own cuts
    loader = corpus.train_loader(rank, world_size)
    valid_loader = corpus.valid_loader(rank, world_size)
    model = DDP(TdnnLstm().to(device), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    writer = SummaryWriter(args.out) if rank == 0 else None
    best = -math.inf
    for epoch in range(args.epochs):
        corpus.set_epoch(epoch)
        valid = train_one_epoch(model, loader, valid_loader, optimizer, device, epoch, rank, writer)
        if valid is not None and valid > best:
            best = valid
            if rank == 0:
                torch.save(model.module.state_dict(), f"{args.out}/best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", default="exp")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--world-size", type=int, default=4)
    options = parser.parse_args()
    torch.multiprocessing.spawn(run, (options.world_size, options), options.world_size)
