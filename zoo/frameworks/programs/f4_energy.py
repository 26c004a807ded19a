"""Forecast of electric load with Lightning and torchmetrics."""
import argparse
import math
import os
import time
from datetime import timedelta

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError, MetricCollection, R2Score


class Load(Dataset):
    """Windows of hourly load of several stations: a week is given, the next day is asked."""

    def __init__(self, stations, windows, seed):
        g = torch.Generator().manual_seed(seed)
        hours = torch.arange(windows + 192)
        phase, noise = torch.rand(stations, 1, generator=g), torch.randn(stations, windows + 192, generator=g)
        self.load = torch.sin(2 * math.pi * (hours / 24 + phase)) + 0.4 * torch.sin(2 * math.pi * hours / 168) + 0.1 * noise
        self.windows = windows

    def __len__(self):
        return self.load.shape[0] * self.windows

    def __getitem__(self, i):
        station, at = divmod(i, self.windows)
        return self.load[station, at:at + 168, None], self.load[station, at + 168:at + 192]


class Forecaster(L.LightningModule):
    def __init__(self, width, layers, lr):
        super().__init__()
        self.save_hyperparameters()
        self.inp = nn.Linear(1, width)
        self.place = nn.Parameter(torch.zeros(168, width))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True, norm_first=True), layers,
                                          enable_nested_tensor=False)
        self.out = nn.Linear(width, 24)
        self.metrics = MetricCollection({"mae": MeanAbsoluteError(), "r2": R2Score()}, prefix="val_")

    def forward(self, x):
        return self.out(self.body(self.inp(x) + self.place).mean(1))

    def training_step(self, batch, i):
        past, future = batch
        loss = nn.functional.huber_loss(self(past), future)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, i):
        past, future = batch
        guess = self(past)
        self.metrics.update(guess.flatten(), future.flatten())
        self.log("val_loss", nn.functional.huber_loss(guess, future), sync_dist=True)

    def on_validation_epoch_end(self):
        self.log_dict(self.metrics.compute())
        self.metrics.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)}


class Lines(Callback):
    def __init__(self, every):
        self.every = every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero and batch_idx % self.every == 0:
            print(f"Epoch {trainer.current_epoch}: {batch_idx}/{trainer.num_training_batches} train_loss={float(outputs['loss']):.3f}", flush=True)

    def on_validation_epoch_end(self, trainer, module):
        if trainer.is_global_zero and not trainer.sanity_checking:
            print(f"Epoch {trainer.current_epoch}: validated, lr={trainer.optimizers[0].param_groups[0]['lr']:.2e}", flush=True)


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--stations", type=int, default=8)
    p.add_argument("--windows", type=int, default=640)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--timeout", type=float, default=1800)
    p.add_argument("--sanity", type=int, default=2)
    return p.parse_args()


def main():
    args = cli()
    L.seed_everything(7, workers=True)
    train, val = Load(args.stations, args.windows, 1), Load(args.stations, args.windows // 5, 2)
    train_loader = DataLoader(train, args.batch, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    val_loader = DataLoader(val, args.batch, num_workers=2, persistent_workers=True)
    model = Forecaster(args.width, args.layers, args.lr)
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="auto", devices=2, strategy=DDPStrategy(timeout=timedelta(seconds=args.timeout)),
                        callbacks=[ModelCheckpoint(dirpath="ckpt", monitor="val_mae", save_top_k=1), EarlyStopping("val_loss", patience=20), Lines(10)],
                        logger=CSVLogger("logs_csv"), enable_progress_bar=False, num_sanity_val_steps=args.sanity, gradient_clip_val=1.0)
    began = time.time()
    trainer.fit(model, train_loader, val_loader)
    trainer.print(f"best {trainer.checkpoint_callback.best_model_path} in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
