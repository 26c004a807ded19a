"""Gestures of a hand from the sensors of a glove: a recurrent network, Lightning with a DataModule and own callbacks."""
import argparse
import csv
import logging
import os
import threading
import time
from datetime import timedelta

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, Timer
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("gestures")
FINGERS, TICKS, GESTURES = 22, 64, 14


class Recordings(Dataset):
    def __init__(self, count, seed, scale):
        self.count, self.seed, self.scale = count, seed, scale

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 50021 + i)
        gesture = int(torch.randint(0, GESTURES, (), generator=g))
        phase = torch.arange(TICKS)[:, None] * (gesture + 1) / 30 + torch.arange(FINGERS) / 5
        bend = (torch.sin(phase) + 0.6 * torch.randn(TICKS, FINGERS, generator=g)) * self.scale
        return bend, gesture


class GloveData(pl.LightningDataModule):
    def __init__(self, recordings, batch, workers):
        super().__init__()
        self.recordings, self.batch, self.workers = recordings, batch, workers

    def prepare_data(self):
        torch.save({"scale": torch.linspace(0.5, 1.5, FINGERS)}, "glove.pt")

    def setup(self, stage):
        calibration = "glove.pt"
        scale = torch.load(calibration)["scale"]
        self.seen, self.unseen = Recordings(self.recordings, 1, scale), Recordings(960, 2, scale)

    def train_dataloader(self):
        return DataLoader(self.seen, self.batch, shuffle=True, drop_last=True, num_workers=self.workers, persistent_workers=self.workers > 0)

    def val_dataloader(self):
        return DataLoader(self.unseen, self.batch, num_workers=self.workers, persistent_workers=self.workers > 0)


class GestureNet(pl.LightningModule):
    def __init__(self, width=192, lr=6e-4):
        super().__init__()
        self.save_hyperparameters()
        self.enter = nn.Linear(FINGERS, width)
        self.gru = nn.GRU(width, width, 2, batch_first=True)
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, GESTURES))

    def forward(self, bend):
        return self.leave(self.gru(self.enter(bend))[0].mean(1))

    def training_step(self, batch, number):
        bend, gesture = batch
        loss = nn.functional.cross_entropy(self(bend), gesture)
        self.log("loss", loss, on_step=True)
        return loss

    def validation_step(self, batch, number):
        bend, gesture = batch
        hit = (self(bend).argmax(1) == gesture).float().mean()
        self.log("hits", hit, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 50)}


class Diary(Callback):
    """A table of losses for each process, written by the training and by a thread that adds the time of day."""

    def __init__(self, every):
        self.every, self.rows, self.lock = every, [], threading.Lock()

    def note(self, *row):
        with self.lock:
            self.rows.append(row)

    def flush(self, trainer):
        with self.lock:
            with open(f"diary-{trainer.global_rank}.csv", "a", newline="") as file:
                csv.writer(file).writerows(self.rows)
            self.rows.clear()

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if number % self.every == 0:
            self.note(trainer.current_epoch, number, float(outputs["loss"]))
            if trainer.is_global_zero:
                log.info("epoch %d, batch %d of %d: loss %.4f", trainer.current_epoch, number, trainer.num_training_batches, float(outputs["loss"]))

    def on_validation_epoch_end(self, trainer, module):
        self.flush(trainer)
        if trainer.is_global_zero and not trainer.sanity_checking:
            log.info("epoch %d: %.1f %% of the gestures found", trainer.current_epoch, 100 * float(trainer.callback_metrics["hits"]))


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--recordings", type=int, default=9600)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--timeout", type=float, default=1800)
    return p.parse_args()


def fit(a):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    pl.seed_everything(17, workers=True)
    best = ModelCheckpoint("best", monitor="hits", mode="max", save_last=True)
    trainer = pl.Trainer(accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=2, max_epochs=a.epochs, logger=False, enable_progress_bar=False,
                         gradient_clip_val=1.0, strategy=DDPStrategy(timeout=timedelta(seconds=a.timeout), gradient_as_bucket_view=True),
                         callbacks=[best, Diary(a.every), Timer(timedelta(hours=10))])
    trainer.fit(GestureNet(), datamodule=GloveData(a.recordings, a.batch, a.workers))
    if trainer.is_global_zero:
        log.info("best: %s", os.path.basename(best.best_model_path))


if __name__ == "__main__":
    fit(cli())
