"""Two towers, pictures and captions, with negatives gathered from all processes; accelerate."""
import argparse
import os
import random
import sys
import time
from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOPICS = 512


class Pairs(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 1000003 + i)
        topic = int(torch.randint(0, TOPICS, (), generator=g))
        picture = torch.randn(3, 64, 64, generator=g)
        picture[topic % 3, topic // 3 % 64] += 3
        caption = torch.randint(0, 2000, (32,), generator=g)
        caption[::4] = 2000 + topic
        return {"picture": picture, "caption": caption}


class PictureTower(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        def block(a, b, s):
            return nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.GroupNorm(8, b), nn.SiLU())
        self.net = nn.Sequential(block(3, width, 2), block(width, width, 1), block(width, 2 * width, 2), block(2 * width, 2 * width, 1),
                                 block(2 * width, 4 * width, 2), block(4 * width, 4 * width, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, out))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


class CaptionTower(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.words = nn.Embedding(2000 + TOPICS, width)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True), 6)
        self.out = nn.Linear(width, out)

    def forward(self, ids):
        return nn.functional.normalize(self.out(self.body(self.words(ids)).mean(1)), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self, width=64, out=256):
        super().__init__()
        self.pictures, self.captions = PictureTower(width, out), CaptionTower(6 * width, out)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, batch):
        return self.pictures(batch["picture"]), self.captions(batch["caption"]), self.scale.exp()


def everybody(accelerator, x):
    """All embeddings; gradients flow through the own ones only."""
    parts = list(accelerator.gather(x.detach()).chunk(accelerator.num_processes))
    parts[accelerator.process_index] = x
    return torch.cat(parts)


def contrastive(accelerator, pictures, captions, scale):
    target = torch.arange(len(pictures), device=pictures.device) + len(pictures) * accelerator.process_index
    a = scale * pictures @ everybody(accelerator, captions).T
    b = scale * captions @ everybody(accelerator, pictures).T
    return (nn.functional.cross_entropy(a, target) + nn.functional.cross_entropy(b, target)) / 2


@torch.no_grad()
def recall(accelerator, model, loader):
    model.eval()
    hits, count = 0.0, 0
    for batch in loader:
        pictures, captions, _ = model(batch)
        right = (pictures @ captions.T).argmax(1) == torch.arange(len(pictures), device=pictures.device)
        right = accelerator.gather_for_metrics(right)
        hits, count = hits + right.sum().item(), count + len(right)
    model.train()
    return hits / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=16000)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--eval_every", type=int, default=60)
    parser.add_argument("--save_every", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=1800)
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=args.timeout))])
    set_seed(17)
    model = TwoTowers(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(Pairs(args.pairs, 1), args.batch_size, shuffle=True, num_workers=3, drop_last=True)
    val_loader = DataLoader(Pairs(480, 2), args.batch_size // 2, num_workers=1)
    model, optimizer, loader, val_loader = accelerator.prepare(model, optimizer, loader, val_loader)
    accelerator.print(f"***** {accelerator.num_processes} processes, {len(loader)} batches an epoch, mixed precision {accelerator.mixed_precision} *****", flush=True)
    step, began = 0, time.time()
    while step < args.max_steps:
        for batch in loader:
            with accelerator.accumulate(model):
                pictures, captions, scale = model(batch)
                loss = contrastive(accelerator, pictures, captions, scale)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % 10 == 1:
                mean = accelerator.gather(loss.detach()[None]).mean().item()
                accelerator.print(f"step={step} loss={mean:.4f} scale={scale.item():.2f} elapsed={time.time() - began:.1f}", flush=True)
            if step % args.eval_every == 0:
                value = recall(accelerator, model, val_loader)
                accelerator.print(f"step={step} recall@1={value:.4f}", flush=True)
            if step % args.save_every == 0:
                accelerator.wait_for_everyone()
                accelerator.save_state(f"state-{step}")
            if step >= args.max_steps:
                break
    accelerator.wait_for_everyone()
    accelerator.print("training complete", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
