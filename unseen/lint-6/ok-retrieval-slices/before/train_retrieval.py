import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from evaluate import match_scores, rank_and_size


def recall_at_one(scores, image_to_texts):
    best = scores.argmax(1).tolist()
    return sum(b in image_to_texts[i] for i, b in enumerate(best)) / len(best)


def main(args, model, train_set, val_set):
    rank, size = rank_and_size()
    seed = args.seed + rank
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)

    device = torch.device("cuda", args.local_rank)
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, shuffle=True)
    train_loader = DataLoader(train_set, args.batch_size, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size)
    model = model.to(device)
    ddp = DistributedDataParallel(model, device_ids=[args.local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    best = 0.0
    for epoch in range(args.epochs):
        if not args.evaluate:
            sampler.set_epoch(epoch)
            ddp.train()
            for images, captions in train_loader:
                loss = ddp(images.to(device), captions)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        scores = match_scores(model, val_loader, val_set.texts, device)
        if rank == 0:
            recall = recall_at_one(scores, val_set.image_to_texts)
            print(f"epoch {epoch} recall@1 {recall:.3f}")
            if recall > best:
                best = recall
                torch.save(model.state_dict(), Path(args.output, "best.pt"))
        if args.evaluate:
            break
        dist.barrier()
