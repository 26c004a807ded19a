"""How does a wildfire spread in the next hour? Residual convolutions over maps of fire, wind, slope and fuel. Lightning starts the second rank:

    python spread.py --devices 2
"""
import argparse
import datetime
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset

EDGE, CHANNELS = 128, 6


class Fires(Dataset):
    """A map with some fires; they grow with the wind, uphill and where there is fuel."""

    def __init__(self, count, first=0):
        self.count, self.first = count, first
        rng = np.random.default_rng(12)
        coarse = rng.standard_normal((4, 80, 80), dtype=np.float32)
        self.land = np.repeat(np.repeat(coarse, 8, 1), 8, 2)
        y, x = np.mgrid[0:EDGE, 0:EDGE].astype(np.float32)
        self.y, self.x = y, x

    def __len__(self):
        return self.count

    def weather(self, rng):
        top, left = rng.integers(0, 640 - EDGE, 2)
        return self.land[:, top:top + EDGE, left:left + EDGE].copy()

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        wind, slope, fuel, damp = land = self.weather(rng)
        now = np.zeros((EDGE, EDGE), np.float32)
        then = np.zeros((EDGE, EDGE), np.float32)
        for _ in range(int(rng.integers(1, 6))):
            cy, cx = rng.uniform(10, EDGE - 10, 2)
            far = (self.y - cy) ** 2 + (self.x - cx) ** 2
            radius = rng.uniform(3, 12)
            now[far < radius ** 2] = 1
            then[far < (radius * (1.3 + 0.4 * np.tanh(wind + slope + fuel - damp))) ** 2] = 1
        hour = np.full((1, EDGE, EDGE), rng.uniform(-1, 1), np.float32)
        return torch.from_numpy(np.concatenate([now[None], land, hour])), torch.from_numpy(np.maximum(now, then))


class FiresData(L.LightningDataModule):
    def __init__(self, o):
        super().__init__()
        self.o = o

    def setup(self, stage=None):
        self.train, self.val = Fires(self.o.fires), Fires(self.o.val_fires, 10 ** 7)

    def train_dataloader(self):
        return DataLoader(self.train, self.o.batch, shuffle=True, num_workers=self.o.workers, drop_last=True, persistent_workers=self.o.workers > 0)

    def val_dataloader(self):
        return DataLoader(self.val, self.o.batch, num_workers=self.o.workers, drop_last=True, persistent_workers=self.o.workers > 0)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.path = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU(),
                                  nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x):
        return x + self.path(x)


class SpreadModel(L.LightningModule):
    def __init__(self, width, depth, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Conv2d(CHANNELS, width, 5, padding=2), *[Residual(width) for _ in range(depth)], nn.GroupNorm(8, width), nn.SiLU(),
                                 nn.Conv2d(width, 1, 1))

    def forward(self, maps):
        return self.net(maps)[:, 0].float()

    def training_step(self, batch, batch_idx):
        maps, burnt = batch
        logits = self(maps)
        loss = F.binary_cross_entropy_with_logits(logits, burnt)
        self.last_loss = loss.detach()
        return loss

    def validation_step(self, batch, batch_idx):
        maps, burnt = batch
        guess = self(maps) > 0
        overlap = (guess & (burnt > 0)).sum() / (guess | (burnt > 0)).sum().clamp(min=1)
        self.log("overlap", overlap, sync_dist=True, batch_size=len(maps))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20000), "interval": "step"}}


class Report(L.Callback):
    """Lines for the terminal, and the end by the clock."""

    def __init__(self, o):
        self.o, self.count, self.losses = o, 0, []

    def on_train_start(self, trainer, module):
        self.began = time.time()
        print(f"rank {trainer.global_rank} of {trainer.world_size}: {trainer.num_training_batches} batches on {module.device}", flush=True)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1
        self.losses.append(module.last_loss)
        if self.count % self.o.log_every == 0:
            mean = torch.stack(self.losses).mean().item()
            if trainer.is_global_zero:
                print(f"update {self.count} loss {mean:.4f} {time.time() - self.began:.1f} s", flush=True)
            self.losses.clear()
        if self.count % 20 == 0:
            late = time.time() - self.began > 60 * self.o.minutes
            trainer.should_stop = trainer.should_stop or trainer.strategy.reduce_boolean_decision(late, all=False)

    def on_validation_end(self, trainer, module):
        if trainer.is_global_zero and not trainer.sanity_checking:
            print(f"update {self.count} validation overlap {trainer.callback_metrics['overlap'].item():.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(devices=2, width=128, depth=6, batch=20, fires=60000, val_fires=640, workers=2, log_every=5, val_every=200, save_every=250).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    L.seed_everything(31, workers=True, verbose=False)
    cuda = torch.cuda.is_available()
    keep = ModelCheckpoint(dirpath="weights", filename="spread-{step}", every_n_train_steps=o.save_every, save_top_k=1, monitor=None)
    trainer = L.Trainer(
        accelerator="gpu" if cuda else "cpu", devices=o.devices, precision="bf16-mixed" if cuda else "32-true", max_epochs=50, gradient_clip_val=1.0,
        strategy=DDPStrategy(process_group_backend="nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=o.timeout)),
        val_check_interval=o.val_every, check_val_every_n_epoch=None, num_sanity_val_steps=1, enable_progress_bar=False, enable_model_summary=False,
        logger=False, callbacks=[Report(o), keep])
    trainer.fit(SpreadModel(o.width, o.depth, o.lr), FiresData(o))
    print(f"rank {trainer.global_rank}: end", flush=True)


if __name__ == "__main__":
    main()
