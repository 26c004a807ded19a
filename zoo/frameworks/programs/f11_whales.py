#!/usr/bin/env python3
# Calls of whales in recordings of hydrophones. Lightning, two GPUs of this machine: python fit_calls.py
import argparse
import os
import time
from datetime import timedelta

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SPECIES = ["blue", "fin", "humpback", "minke", "right", "sei", "sperm", "none"]
RATE, SECONDS = 8000, 4
SAMPLES = RATE * SECONDS


class Hydrophones(IterableDataset):
    """Endless clips: noise of the sea and a sweep whose frequencies depend on the species."""

    def __init__(self, station, clips=None):
        self.station, self.clips = station, clips
        self.sea = np.random.default_rng(1).standard_normal(8 * SAMPLES, dtype=np.float32)
        self.time = np.arange(SAMPLES, dtype=np.float32) / RATE

    def clip(self, rng):
        kind = int(rng.integers(len(SPECIES)))
        start = int(rng.integers(7 * SAMPLES))
        wave = self.sea[start:start + SAMPLES] * np.float32(0.7)
        if kind < 7:
            low, rate = 60 + 130 * kind, rng.uniform(10, 60)
            phase = (low + rate * self.time) * self.time * np.float32(6.2832)
            wave = wave + np.sin(phase) * np.float32(rng.uniform(0.3, 1.2))
        return wave.astype(np.float32), kind

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng([self.station, info.id if info else 0])
        n = 0
        while self.clips is None or n < self.clips:
            yield self.clip(rng)
            n += 1


class Sea(pl.LightningDataModule):
    def __init__(self, batch, workers):
        super().__init__()
        self.batch, self.workers = batch, workers

    def station(self):
        return self.trainer.global_rank if self.trainer else 0

    def train_dataloader(self):
        return DataLoader(Hydrophones(self.station()), self.batch, num_workers=self.workers, pin_memory=torch.cuda.is_available())

    def val_dataloader(self):
        return DataLoader(Hydrophones(100 + self.station(), 10 * self.batch), self.batch, num_workers=0)


class Spectrogram(nn.Module):
    def __init__(self, bins=128):
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.bins = bins

    @torch.no_grad()
    def forward(self, wave):
        with torch.autocast(wave.device.type, enabled=False):
            power = torch.stft(wave.float(), 512, 128, window=self.window, return_complex=True).abs().square()
        return torch.log(power[:, None, :self.bins] + 1e-4)


class Residual(nn.Module):
    def __init__(self, width, stride=1, wider=1):
        super().__init__()
        out = width * wider
        self.body = nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.SiLU(),
                                  nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if stride > 1 or wider > 1 else nn.Identity()

    def forward(self, x):
        return F.silu(self.skip(x) + self.body(x))


class Calls(pl.LightningModule):
    def __init__(self, width=64, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        w = width
        self.picture = Spectrogram()
        self.net = nn.Sequential(nn.Conv2d(1, w, 5, 2, 2), nn.SiLU(), Residual(w), Residual(w), Residual(w, 2, 2), Residual(2 * w), Residual(2 * w),
                                 Residual(2 * w, 2, 2), Residual(4 * w), Residual(4 * w))
        self.over_time = nn.TransformerEncoderLayer(4 * w, 4, 8 * w, 0.1, batch_first=True, norm_first=True)
        self.leave = nn.Linear(4 * w, len(SPECIES))

    def forward(self, wave):
        x = self.picture(wave).contiguous(memory_format=torch.channels_last)
        x = self.net(x).mean(2).transpose(1, 2)
        return self.leave(self.over_time(x).mean(1))

    def training_step(self, batch, batch_idx):
        wave, kind = batch
        logits = self(wave)
        loss = F.cross_entropy(logits, kind, label_smoothing=0.05)
        self.log("loss", loss)
        self.log("accuracy", (logits.argmax(1) == kind).float().mean())
        return loss

    def validation_step(self, batch, batch_idx):
        wave, kind = batch
        logits = self(wave)
        self.log("val/loss", F.cross_entropy(logits, kind), sync_dist=True)
        self.log("val/accuracy", (logits.argmax(1) == kind).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=0.01)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, 200)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm, "interval": "step"}}


class Clock(Callback):
    """Prints how it goes, and ends the training after some minutes; all ranks agree."""

    def __init__(self, minutes, every=20):
        self.minutes, self.every, self.began = minutes, every, None

    def on_train_start(self, trainer, module):
        self.began = self.last = time.time()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % self.every == 0:
            now = time.time()
            if trainer.is_global_zero:
                print(f"step {trainer.global_step} loss {outputs['loss'].item():.4f} {self.every * len(batch[1]) / (now - self.last):.0f} clips/s {now - self.began:.1f}s", flush=True)
            self.last = now
            over = trainer.strategy.broadcast(now - self.began > 60 * self.minutes, src=0)
            trainer.should_stop = trainer.should_stop or over


class Slow(Callback):
    """A second, slowly moving copy of the weights."""

    def __init__(self, decay=0.998):
        self.decay, self.copy = decay, None

    @torch.no_grad()
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        weights = [p.detach() for p in module.parameters()]
        if self.copy is None:
            self.copy = [w.clone() for w in weights]
        torch._foreach_lerp_(self.copy, weights, 1 - self.decay)


class Board(Callback):
    def on_validation_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if trainer.is_global_zero:
            print(f"validation at step {trainer.global_step}: loss {metrics['val/loss']:.4f} accuracy {metrics['val/accuracy']:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=80)
    parser.add_argument("--batch", type=int, default=56)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--val-every", type=int, default=250)
    parser.add_argument("--save-every", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=1.4)
    parser.add_argument("--timeout", type=int, default=900)
    args = parser.parse_args()
    pl.seed_everything(5)
    cuda = torch.cuda.is_available()
    trainer = pl.Trainer(
        accelerator="gpu" if cuda else "cpu", devices=2, precision="bf16-mixed" if cuda else "32-true", max_steps=-1, max_epochs=1,
        strategy=DDPStrategy(process_group_backend="nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout)),
        val_check_interval=args.val_every, accumulate_grad_batches=args.accumulate, gradient_clip_val=1.0, log_every_n_steps=20, enable_progress_bar=False,
        logger=CSVLogger("logs", name="calls"), use_distributed_sampler=False,
        callbacks=[LearningRateMonitor("step"), ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=args.save_every, save_top_k=1), Clock(args.minutes), Slow(), Board()])
    trainer.fit(Calls(args.width), datamodule=Sea(args.batch, args.workers))
    print(f"rank {trainer.global_rank} ends at step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main()
