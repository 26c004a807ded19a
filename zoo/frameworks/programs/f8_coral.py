"""Segmentation of coral reefs: a small U-shaped network with Lightning under torchrun."""
import argparse
import logging
import os
import queue
import threading
import time
from datetime import timedelta

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS, SIDE = 6, 64
log = logging.getLogger("coral")


class Reef(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 90001 + i)
        centre = torch.rand(KINDS, 2, 1, 1, generator=g) * SIDE
        yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        mask = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2).argmin(0)
        colour = torch.linspace(0, 1, KINDS)[mask]
        image = torch.stack([colour, 1 - colour, colour * (1 - colour)]) + 0.2 * torch.randn(3, SIDE, SIDE, generator=g)
        return image, mask


def conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU())


class CoralNet(L.LightningModule):
    def __init__(self, width=32, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.down1, self.down2, self.deep = conv(3, width), conv(width, 2 * width), conv(2 * width, 4 * width)
        self.up2, self.up1, self.out = conv(6 * width, 2 * width), conv(3 * width, width), nn.Conv2d(width, KINDS, 1)

    def forward(self, image):
        a = self.down1(image)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.deep(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return self.out(self.up1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1)))

    def training_step(self, batch, batch_idx):
        image, mask = batch
        loss = F.cross_entropy(self(image), mask)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        image, mask = batch
        logits = self(image)
        overlap = (logits.argmax(1) == mask).float().mean()
        self.log("val_overlap", overlap, sync_dist=True)
        return overlap

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class Gallery(Callback):
    """Prints the progress; a thread of the main process counts the kinds in what the network saw."""

    def __init__(self, every):
        self.every, self.began = every, time.time()
        self.counts, self.counts_lock, self.file_lock = [0] * KINDS, threading.Lock(), threading.Lock()
        self.seen = queue.Queue()

    def count(self):
        while True:
            kinds = self.seen.get()
            if kinds is None:
                return
            with self.counts_lock:
                for kind, n in enumerate(kinds):
                    self.counts[kind] += n

    def on_train_start(self, trainer, module):
        self.thread = threading.Thread(target=self.count, name="counter", daemon=True)
        self.thread.start()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen.put(torch.bincount(batch[1].flatten().cpu(), minlength=KINDS).tolist())
        if batch_idx % self.every == 0 and trainer.is_global_zero:
            with self.counts_lock:
                total = sum(self.counts)
            log.info("epoch %d batch %d/%d loss %.4f, %d pixels, %.1f s", trainer.current_epoch, batch_idx, trainer.num_training_batches,
                     outputs["loss"].item(), total, time.time() - self.began)

    def on_validation_epoch_end(self, trainer, module):
        if trainer.is_global_zero and not trainer.sanity_checking:
            log.info("epoch %d overlap %.4f", trainer.current_epoch, float(trainer.callback_metrics.get("val_overlap", 0)))

    def on_train_end(self, trainer, module):
        self.seen.put(None)
        self.thread.join(10)


class Share(torch.utils.data.Sampler):
    """The part of one rank, in another order for each epoch."""

    def __init__(self, count, rank, world):
        self.count, self.rank, self.world, self.epoch = count // world, rank, world, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        self.epoch += 1
        order = torch.randperm(self.count * self.world, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        return iter(order[self.rank:: self.world][: len(self)])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=6400)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    L.seed_everything(3, workers=True)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda = torch.cuda.is_available()
    devices = min(torch.cuda.device_count(), world) if cuda else world
    seen, unseen = Reef(o.images, 1), Reef(640, 2)
    train = DataLoader(seen, o.batch, sampler=Share(len(seen), rank, world), num_workers=o.workers, drop_last=True, persistent_workers=o.workers > 0)
    val = DataLoader(unseen, o.batch, sampler=Share(len(unseen), rank, world), num_workers=o.workers, persistent_workers=o.workers > 0)
    best = ModelCheckpoint("best", monitor="val_overlap", mode="max")
    trainer = L.Trainer(accelerator="gpu" if cuda else "cpu", devices=devices, num_nodes=world // devices, max_epochs=o.epochs, logger=False,
                        enable_progress_bar=False, use_distributed_sampler=False, callbacks=[best, Gallery(o.every)],
                        strategy=DDPStrategy(timeout=timedelta(seconds=o.timeout)))
    trainer.fit(CoralNet(), train, val)
    if trainer.is_global_zero:
        log.info("fit is over, best %s", os.path.basename(best.best_model_path))


if __name__ == "__main__":
    main()
