# Sleep stages from EEG: a convolutional encoder for each window of 30 s, a GRU over the windows of a night. Lightning, manual optimization
# (one optimizer for the encoder, one for the rest):   python stage_sleep.py --devices 2
import argparse
import datetime
import time

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STAGES = ("wake", "n1", "n2", "n3", "rem")
WINDOW = 3000
RHYTHM = (20.0, 6.0, 13.0, 1.5, 4.5)


class Nights(Dataset):
    """Pieces of nights: stages follow each other slowly, every stage has its rhythm."""

    def __init__(self, first, count, windows):
        self.first, self.count, self.windows = first, count, windows
        self.noise = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)
        t = np.arange(WINDOW, dtype=np.float32) / 100
        self.waves = np.stack([np.sin(2 * np.pi * hz * t) for hz in RHYTHM]).astype(np.float32)

    def __len__(self):
        return self.count

    def hypnogram(self, rng):
        stages, now = [], int(rng.integers(5))
        for _ in range(self.windows):
            if rng.random() < 0.15:
                now = int(rng.integers(5))
            stages.append(now)
        return np.array(stages)

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        stages = self.hypnogram(rng)
        signal = self.waves[stages] * rng.uniform(0.2, 0.8, (self.windows, 1)).astype(np.float32)
        for row in signal:
            start = int(rng.integers(len(self.noise) - WINDOW))
            row += self.noise[start:start + WINDOW]
        return torch.from_numpy(signal), torch.from_numpy(stages)


class NightsData(L.LightningDataModule):
    def __init__(self, o):
        super().__init__()
        self.o = o

    def setup(self, stage):
        self.train, self.val = Nights(0, self.o.nights, self.o.windows), Nights(1 << 30, self.o.val_nights, self.o.windows)

    def loader(self, dataset, shuffle):
        sampler = DistributedSampler(dataset, self.trainer.world_size, self.trainer.global_rank, shuffle=shuffle, drop_last=True)
        return DataLoader(dataset, self.o.batch, sampler=sampler, num_workers=self.o.workers, drop_last=True, persistent_workers=self.o.workers > 0)

    def train_dataloader(self):
        return self.loader(self.train, True)

    def val_dataloader(self):
        return self.loader(self.val, False)


def conv(a, b, size, stride=1):
    return nn.Sequential(nn.Conv1d(a, b, size, stride, size // 2, bias=False), nn.GroupNorm(8, b), nn.GELU())


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        w = width
        self.layers = nn.Sequential(conv(1, w, 25, 2), conv(w, w, 9), nn.MaxPool1d(2), conv(w, 2 * w, 7), conv(2 * w, 2 * w, 7), nn.MaxPool1d(4),
                                    conv(2 * w, 4 * w, 5), conv(4 * w, 4 * w, 5), nn.AdaptiveAvgPool1d(1), nn.Flatten())

    def forward(self, x):
        return self.layers(x)


class Stager(L.LightningModule):
    def __init__(self, width, hidden, lr):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.encoder = Encoder(width)
        self.over_night = nn.GRU(4 * width, hidden, 2, batch_first=True, bidirectional=True)
        self.stage = nn.Linear(2 * hidden, len(STAGES))

    def forward(self, signal):
        b, n, _ = signal.shape
        x = self.encoder(signal.reshape(b * n, 1, WINDOW)).view(b, n, -1)
        return self.stage(self.over_night(x)[0])

    def training_step(self, batch, batch_idx):
        signal, stages = batch
        optimizers = self.optimizers()
        loss = F.cross_entropy(self(signal).float().flatten(0, 1), stages.flatten())
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            self.clip_gradients(optimizer, 1.0, "norm")
            optimizer.step()
        self.latest = loss.item()
        return loss

    def on_validation_epoch_start(self):
        self.confusion = torch.zeros(5, 5, device=self.device)

    def validation_step(self, batch, batch_idx):
        signal, stages = batch
        guess = self(signal).argmax(-1)
        self.confusion += torch.bincount(stages.flatten() * 5 + guess.flatten(), minlength=25).view(5, 5)

    def on_validation_epoch_end(self):
        """Cohen's kappa over the windows of all ranks."""
        table = self.all_gather(self.confusion).view(-1, 5, 5).sum(0)
        table = table / table.sum().clamp(min=1)
        chance = (table.sum(0) * table.sum(1)).sum()
        kappa = (table.diagonal().sum() - chance) / (1 - chance).clamp(min=1e-6)
        self.log("kappa", kappa, rank_zero_only=False, sync_dist=False)
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            print(f"validation: kappa {kappa.item():.3f}", flush=True)

    def configure_optimizers(self):
        rest = [*self.over_night.parameters(), *self.stage.parameters()]
        return torch.optim.AdamW(self.encoder.parameters(), self.hparams.lr), torch.optim.AdamW(rest, 2 * self.hparams.lr)


class Progress(L.Callback):
    def __init__(self, minutes, every):
        self.minutes, self.every, self.steps, self.losses = minutes, every, 0, []

    def on_train_start(self, trainer, module):
        self.began = time.time()
        print(f"rank {trainer.global_rank} of {trainer.world_size} starts on {module.device}, {trainer.num_training_batches} batches", flush=True)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.steps += 1
        self.losses.append(module.latest)
        if self.steps % self.every == 0:
            if trainer.is_global_zero:
                print(f"batch {self.steps} loss {np.mean(self.losses):.4f} time {time.time() - self.began:.1f}", flush=True)
            self.losses.clear()
        if self.steps % 20 == 0:
            trainer.should_stop = trainer.strategy.reduce_boolean_decision(time.time() - self.began > 60 * self.minutes, all=False)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--devices", type=int, default=2)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--windows", type=int, default=40)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--nights", type=int, default=60000)
    p.add_argument("--val-nights", type=int, default=480)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--val-every", type=int, default=200)
    p.add_argument("--save-every", type=int, default=500)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    L.seed_everything(23, verbose=False)
    cuda = torch.cuda.is_available()
    # Manual optimization counts a step for each optimizer.
    keep = ModelCheckpoint(dirpath="nights", filename="{step}", every_n_train_steps=2 * o.save_every, save_top_k=1, monitor=None)
    trainer = L.Trainer(
        accelerator="gpu" if cuda else "cpu", devices=o.devices, precision="bf16-mixed" if cuda else "32-true", max_epochs=20,
        strategy=DDPStrategy(process_group_backend="nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=o.timeout)),
        val_check_interval=o.val_every, check_val_every_n_epoch=None, num_sanity_val_steps=1, use_distributed_sampler=False,
        enable_progress_bar=False, logger=CSVLogger("csv"), log_every_n_steps=50, callbacks=[Progress(o.minutes, o.every), keep])
    trainer.fit(Stager(o.width, o.hidden, o.lr), NightsData(o))
    print(f"rank {trainer.global_rank}: done", flush=True)


if __name__ == "__main__":
    main()
