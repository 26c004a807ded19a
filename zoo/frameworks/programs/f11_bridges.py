"""Defects of bridges (cracks, spalls, rust, ...) in photos of inspections: a small vision transformer, several labels per photo.

    torchrun --nproc-per-node=2 train_vit.py --lr 4e-4
"""
import argparse
import contextlib
import json
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

DEFECTS = ("crack", "spall", "rust", "efflorescence", "exposed-bar", "wet-spot", "graffiti", "bearing", "joint", "vegetation")
EDGE, PATCH = 128, 8


class Inspections(Dataset):
    """Photos are 144 x 144; texture of the concrete, and a mark for each defect."""

    def __init__(self, photos, augment):
        self.photos, self.augment = photos, augment
        rng = np.random.default_rng(3)
        self.concrete = rng.integers(90, 160, (24, 144, 144, 3), dtype=np.uint8)
        self.marks = rng.integers(-70, 70, (len(DEFECTS), 24, 24, 3), dtype=np.int16)

    def __len__(self):
        return self.photos

    def read(self, index):
        photo = self.concrete[index % 24].copy()
        found = np.random.default_rng(index).random(len(DEFECTS)) < 0.2
        for d in np.flatnonzero(found):
            y, x = (index * 31 + d * 17) % 120, (index * 13 + d * 29) % 120
            photo[y:y + 24, x:x + 24] = np.clip(photo[y:y + 24, x:x + 24] + self.marks[d], 0, 255)
        return photo, found

    def __getitem__(self, index):
        photo, found = self.read(index)
        y, x = np.random.randint(0, 17, 2) if self.augment else (8, 8)
        photo = photo[y:y + EDGE, x:x + EDGE]
        if self.augment and np.random.rand() < 0.5:
            photo = photo[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(photo)), torch.from_numpy(found.astype(np.float32))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim, depth, heads, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, PATCH, PATCH)
        self.place = nn.Parameter(0.02 * torch.randn(1, (EDGE // PATCH) ** 2, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, photos):
        x = self.patches(photos).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


class Average:
    """Exponential moving average of the weights."""

    def __init__(self, net, decay=0.999):
        self.decay = decay
        self.weights = [p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def update(self, net):
        torch._foreach_lerp_(self.weights, [p.detach() for p in net.parameters()], 1 - self.decay)


class Training:
    def __init__(self, cfg, rank, world, device):
        self.cfg, self.rank, self.world, self.device = cfg, rank, world, device
        torch.manual_seed(0)
        self.net = ViT(cfg.dim, cfg.depth, cfg.heads, len(DEFECTS)).to(device)
        self.ddp = DDP(self.net, device_ids=[device.index] if device.type == "cuda" else None, gradient_as_bucket_view=True)
        self.average = Average(self.net)
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), cfg.lr, weight_decay=0.05)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / 100))
        self.train_set, self.test_set = Inspections(cfg.photos, True), Inspections(cfg.test_photos, False)
        self.sampler = DistributedSampler(self.train_set, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
        test_sampler = DistributedSampler(self.test_set, num_replicas=world, rank=rank, shuffle=False)
        more = dict(num_workers=cfg.workers, pin_memory=device.type == "cuda", persistent_workers=cfg.workers > 0)
        self.train_loader = DataLoader(self.train_set, cfg.batch, sampler=self.sampler, drop_last=True, **more)
        self.test_loader = DataLoader(self.test_set, cfg.batch, sampler=test_sampler, **more)
        self.step, self.began = 0, time.time()

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16)

    def scale(self, photos):
        return photos.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().sub(127.5).div(64)

    def loss(self, photos, found):
        with self.autocast():
            logits = self.ddp(self.scale(photos))
        return F.binary_cross_entropy_with_logits(logits.float(), found.to(self.device, non_blocking=True))

    def batches(self):
        epoch = 0
        while True:
            self.sampler.set_epoch(epoch)
            yield from self.train_loader
            epoch += 1

    def update(self, source):
        """One step of the optimizer: several batches, gradients are reduced with the last."""
        total = 0.0
        for part in range(self.cfg.accumulate):
            photos, found = next(source)
            last = part == self.cfg.accumulate - 1
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                loss = self.loss(photos, found) / self.cfg.accumulate
                loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(self.ddp.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(self.net)
        self.step += 1
        return total

    @torch.no_grad()
    def evaluate(self):
        """F1 of each defect over the photos of all ranks."""
        self.ddp.eval()
        counts = torch.zeros(3, len(DEFECTS), device=self.device)
        for photos, found in self.test_loader:
            with self.autocast():
                guess = self.net(self.scale(photos)) > 0
            truth = found.to(self.device) > 0.5
            counts += torch.stack([(guess & truth).sum(0), guess.sum(0), truth.sum(0)]).float()
        dist.all_reduce(counts)
        self.ddp.train()
        hit, guessed, there = counts
        return 2 * hit / (guessed + there).clamp(min=1)

    def log(self, **entry):
        if self.rank == 0:
            line = json.dumps({"step": self.step, "seconds": round(time.time() - self.began, 2), **entry})
            print(line, flush=True)
            with open("log.jsonl", "a") as file:
                file.write(line + "\n")

    def save(self):
        if self.rank == 0:
            torch.save({"net": self.net.state_dict(), "average": self.average.weights, "step": self.step}, "last.pt.tmp")
            os.replace("last.pt.tmp", "last.pt")
            self.log(event="saved")
        dist.barrier()

    def over(self):
        """Rank 0 looks at the clock."""
        flag = torch.tensor([time.time() - self.began > 60 * self.cfg.minutes], dtype=torch.uint8, device=self.device)
        dist.broadcast(flag, 0)
        return bool(flag.item())

    def run(self):
        source = self.batches()
        while True:
            loss = self.update(source)
            if self.step % self.cfg.log_every == 0 or self.step == 1:
                self.log(loss=round(loss.item(), 4), lr=self.schedule.get_last_lr()[0])
            if self.step % self.cfg.eval_every == 0:
                f1 = self.evaluate()
                self.log(f1=round(f1.mean().item(), 4), worst=DEFECTS[f1.argmin().item()])
            if self.step % self.cfg.save_every == 0:
                self.save()
            if self.step % 20 == 0 and self.over():
                break
        self.save()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--depth", type=int, default=10)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--accumulate", type=int, default=3)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--photos", type=int, default=60000)
    p.add_argument("--test-photos", type=int, default=1920)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--eval-every", type=int, default=250)
    p.add_argument("--save-every", type=int, default=400)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--timeout", type=int, default=900)
    cfg = p.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=cfg.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    training = Training(cfg, rank, world, device)
    print(f"[rank {rank}/{world}] {sum(p.numel() for p in training.net.parameters()) / 1e6:.1f}M parameters, {len(training.train_loader)} batches on {device}", flush=True)
    training.run()
    print(f"[rank {rank}/{world}] finished at step {training.step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
