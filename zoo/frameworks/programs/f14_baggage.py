"""Where is the dense thing in this suitcase? Segments X-ray pictures of two energies with a small U-Net. Lightning starts the second rank:

    python screen.py --lanes 2
"""
import argparse
import time
from datetime import timedelta

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 128
LOW = np.array([0.3, 0.5, 0.9, 1.6], np.float32)
HIGH = np.array([0.25, 0.35, 0.5, 1.3], np.float32)


class Suitcases(Dataset):
    """Boxes of cloth, plastic, glass and metal on top of each other. The metal ones are wanted."""

    def __init__(self, count, first):
        self.count, self.first = count, first

    def __len__(self):
        return self.count

    def shadow(self, rng):
        low, high = np.zeros((SIDE, SIDE), np.float32), np.zeros((SIDE, SIDE), np.float32)
        metal = np.zeros((SIDE, SIDE), np.float32)
        for _ in range(int(rng.integers(6, 14))):
            stuff = int(rng.integers(0, 4))
            top, left = rng.integers(0, SIDE - 12, 2)
            tall, broad = rng.integers(8, 56 if stuff < 3 else 24, 2)
            place = (slice(top, top + tall), slice(left, left + broad))
            thick = np.float32(rng.uniform(0.2, 1.0))
            low[place] += thick * LOW[stuff]
            high[place] += thick * HIGH[stuff]
            if stuff == 3:
                metal[place] = 1
        return low, high, metal

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        low, high, metal = self.shadow(rng)
        picture = np.exp(-np.stack([low, high]))
        picture += np.float32(0.03) * rng.standard_normal(picture.shape, dtype=np.float32)
        return torch.from_numpy(picture), torch.from_numpy(metal)


class Terminal(L.LightningDataModule):
    """Each rank has suitcases of its own."""

    def __init__(self, o):
        super().__init__()
        self.o = o

    def setup(self, stage=None):
        rank = self.trainer.global_rank
        held = self.o.held
        self.seen = Suitcases(self.o.cases, 10 ** 7 * rank)
        self.unseen = Suitcases(held, 10 ** 9 + 10 ** 6 * rank)

    def loader(self, cases):
        return DataLoader(cases, self.o.batch, num_workers=self.o.workers, drop_last=True, persistent_workers=self.o.workers > 0)

    def train_dataloader(self):
        return self.loader(self.seen)

    def val_dataloader(self):
        return self.loader(self.unseen)


def twice(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class Hourglass(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.fine, self.middle, self.coarse = twice(2, w), twice(w, 2 * w), twice(2 * w, 4 * w)
        self.rise2, self.rise1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.join2, self.join1 = twice(4 * w, 2 * w), twice(2 * w, w)
        self.mark = nn.Conv2d(w, 1, 1)

    def forward(self, picture):
        fine = self.fine(picture)
        middle = self.middle(F.max_pool2d(fine, 2))
        coarse = self.coarse(F.max_pool2d(middle, 2))
        middle = self.join2(torch.cat([middle, self.rise2(coarse)], 1))
        fine = self.join1(torch.cat([fine, self.rise1(middle)], 1))
        return self.mark(fine)[:, 0]


class Screener(L.LightningModule):
    def __init__(self, width, rate):
        super().__init__()
        self.save_hyperparameters()
        self.glass = Hourglass(width)

    def forward(self, picture):
        return self.glass(picture).float()

    def training_step(self, batch, batch_idx):
        picture, metal = batch
        marks = self(picture)
        loss = F.binary_cross_entropy_with_logits(marks, metal, pos_weight=torch.tensor(3.0, device=marks.device))
        self.recent = loss.detach()
        return loss

    def validation_step(self, batch, batch_idx):
        picture, metal = batch
        found = self(picture) > 0
        counts = torch.stack([(found & (metal > 0)).sum(), found.sum(), (metal > 0).sum()]).float()
        hits, marked, there = self.all_gather(counts).reshape(-1, 3).sum(0).unbind()
        self.log("dice", 2 * hits / (marked + there).clamp(min=1), batch_size=len(picture))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), self.hparams.rate, weight_decay=1e-3)


class Supervisor(L.Callback):
    """Tells how it goes, and when the shift is over."""

    def __init__(self, o):
        self.o, self.last, self.sum = o, 0, 0.0

    def on_train_start(self, trainer, module):
        self.began = time.time()
        print(f"lane {trainer.global_rank} of {trainer.world_size}: {trainer.num_training_batches} batches, {module.device}", flush=True)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        now = trainer.global_step
        self.sum = self.sum + module.recent
        if now == self.last:
            return
        self.last = now
        if now % self.o.tell_every == 0:
            mean = float(self.sum) / (self.o.tell_every * trainer.accumulate_grad_batches)
            self.sum = 0.0
            if trainer.is_global_zero:
                print(f"update {now} loss {mean:.4f} {time.time() - self.began:.1f} s", flush=True)
        if now % 20 == 0:
            over = time.time() - self.began > 60 * self.o.minutes
            if trainer.strategy.reduce_boolean_decision(over, all=False):
                trainer.should_stop = True

    def on_validation_end(self, trainer, module):
        if trainer.is_global_zero and not trainer.sanity_checking:
            print(f"update {self.last} validation dice {float(trainer.callback_metrics['dice']):.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(lanes=2, width=48, batch=24, cases=240000, held=240, workers=2, tell_every=5, val_every=300, save_every=250).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--rate", type=float, default=5e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    L.seed_everything(8, verbose=False)
    cuda = torch.cuda.is_available()
    strategy = DDPStrategy(process_group_backend="nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    keeper = ModelCheckpoint(dirpath="shifts", filename="screen-{step}", every_n_train_steps=o.save_every, save_top_k=1, monitor=None)
    trainer = L.Trainer(accelerator="gpu" if cuda else "cpu", devices=o.lanes, strategy=strategy, precision="bf16-mixed" if cuda else "32-true", max_epochs=90,
                        accumulate_grad_batches=2, use_distributed_sampler=False, val_check_interval=o.val_every, check_val_every_n_epoch=None,
                        num_sanity_val_steps=1, enable_progress_bar=False, enable_model_summary=False, logger=False, callbacks=[Supervisor(o), keeper])
    trainer.fit(Screener(o.width, o.rate), datamodule=Terminal(o))
    print(f"lane {trainer.global_rank}: end, {trainer.global_step} updates", flush=True)


if __name__ == "__main__":
    main()
