"""Phase picker for seismograms (P, S, noise): 1-D U-Net, PyTorch Lightning on two GPUs of this machine. `python fit_picker.py`"""
import argparse
import logging
import time
from datetime import timedelta

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import DataLoader, Dataset

LENGTH = 3072


class Traces(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, idx):
        rng = np.random.default_rng([self.seed, idx])
        trace = rng.standard_normal((3, LENGTH), dtype=np.float32)
        p = int(rng.integers(200, 1400))
        s = p + int(rng.integers(150, 900))
        envelope = np.zeros(LENGTH, np.float32)
        t = np.arange(LENGTH, dtype=np.float32)
        envelope[p:] += 3 * np.exp(-(t[p:] - p) / 300)
        envelope[s:] += 6 * np.exp(-(t[s:] - s) / 500)
        trace = trace * (0.5 + envelope)
        label = np.zeros(LENGTH, np.int64)
        label[p - 20:p + 20], label[s - 20:s + 20] = 1, 2
        trace = (trace - trace.mean(1, keepdims=True)) / trace.std(1, keepdims=True)
        return torch.from_numpy(trace), torch.from_numpy(label)


class Data(L.LightningDataModule):
    def __init__(self, batch, workers):
        super().__init__()
        self.batch, self.workers = batch, workers

    def train_dataloader(self):
        return DataLoader(Traces(64000, 1), self.batch, shuffle=True, drop_last=True, num_workers=self.workers, persistent_workers=self.workers > 0)

    def val_dataloader(self):
        return DataLoader(Traces(1280, 2), self.batch, drop_last=True, num_workers=self.workers, persistent_workers=self.workers > 0)


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv1d(cin, cout, 7, stride, 3), nn.GroupNorm(8, cout), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, width, depth=4):
        super().__init__()
        w = [width * 2 ** min(i, 3) for i in range(depth + 1)]
        self.stem = nn.Sequential(conv(3, width), conv(width, width))
        self.down = nn.ModuleList(nn.Sequential(conv(w[i], w[i + 1], 2), conv(w[i + 1], w[i + 1])) for i in range(depth))
        self.up = nn.ModuleList(nn.Sequential(conv(w[i + 1] + w[i], w[i]), conv(w[i], w[i])) for i in reversed(range(depth)))
        self.head = nn.Conv1d(width, 3, 1)

    def forward(self, x):
        x, skips = self.stem(x), []
        for down in self.down:
            skips.append(x)
            x = down(x)
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2), skips.pop()], 1))
        return self.head(x)


class Picker(L.LightningModule):
    def __init__(self, width, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet(width)
        self.register_buffer("weight", torch.tensor([0.05, 1.0, 1.0]))

    def training_step(self, batch, batch_idx):
        trace, label = batch
        logits = self.net(trace)
        loss = F.cross_entropy(logits, label, self.weight)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        trace, label = batch
        logits = self.net(trace)
        self.log("val_loss", F.cross_entropy(logits, label, self.weight), sync_dist=True, prog_bar=True)
        for phase, k in (("p", 1), ("s", 2)):
            miss = (logits[:, k].argmax(1) - (label == k).float().argmax(1)).abs() < 60
            self.log(f"val_{phase}", miss.float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)}


class Report(Callback):
    def __init__(self, every):
        self.every, self.t0 = every, None

    def on_train_start(self, trainer, pl_module):
        self.t0 = time.time()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % self.every == 0:
            loss = outputs["loss"].item()
            rank_zero_info(f"{time.time() - self.t0:7.1f}s global_step={trainer.global_step} train_loss={loss:.4f}")

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            m = trainer.callback_metrics
            rank_zero_info(f"validation: loss={m['val_loss']:.4f} P within 0.6s={m['val_p']:.3f} S={m['val_s']:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--val-every", type=int, default=150)
    parser.add_argument("--patience", type=int, default=1000)
    parser.add_argument("--max-time", type=int, default=72, help="seconds")
    parser.add_argument("--timeout", type=int, default=900)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.INFO)
    L.seed_everything(11, workers=True)
    gpu = torch.cuda.is_available()
    trainer = L.Trainer(
        accelerator="gpu" if gpu else "cpu", devices=2, max_epochs=-1, max_time=timedelta(seconds=args.max_time),
        strategy=DDPStrategy(process_group_backend="nccl" if gpu else "gloo", timeout=timedelta(seconds=args.timeout)),
        precision="bf16-mixed" if gpu else "32-true", val_check_interval=args.val_every, log_every_n_steps=10, gradient_clip_val=1.0, logger=CSVLogger("runs", name="picker"),
        callbacks=[EarlyStopping("val_loss", patience=args.patience, verbose=True), ModelCheckpoint("ckpt", monitor="val_loss", save_last=True), Report(20)],
        enable_progress_bar=False)
    trainer.fit(Picker(args.width, args.lr), datamodule=Data(args.batch, args.workers))
    rank_zero_info(f"stopped at global_step={trainer.global_step}, best {trainer.checkpoint_callback.best_model_path}")


if __name__ == "__main__":
    main()
