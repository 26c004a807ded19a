import argparse
import datetime
import time

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import JaccardIndex


class Tiles(Dataset):
    """Synthetic aerial tiles with a mask."""

    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        rng = torch.Generator().manual_seed(self.seed + k)
        mask = torch.zeros(32, 32, dtype=torch.long)
        a, b = torch.randint(0, 20, (2,), generator=rng).tolist()
        mask[a:a + 12, b:b + 12] = 1
        tile = torch.randn(4, 32, 32, generator=rng) * 0.3 + mask
        return tile, mask


class TilesModule(pl.LightningDataModule):
    def __init__(self, workers):
        super().__init__()
        self.workers = workers

    def setup(self, stage=None):
        self.train, self.val = Tiles(6400, 0), Tiles(640, 10**6)

    def train_dataloader(self):
        return DataLoader(self.train, 32, shuffle=True, num_workers=self.workers, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, 32, num_workers=self.workers)


class Segmenter(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.down = nn.Sequential(nn.Conv2d(4, 32, 3, 2, 1), nn.GELU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GELU())
        self.up = nn.Sequential(nn.ConvTranspose2d(64, 32, 2, 2), nn.GELU(), nn.ConvTranspose2d(32, 2, 2, 2))
        self.iou = JaccardIndex("multiclass", num_classes=2)
        self.seen = []

    def forward(self, x):
        return self.up(self.down(x))

    def training_step(self, batch, i):
        tile, mask = batch
        loss = nn.functional.cross_entropy(self(tile), mask)
        self.log("loss/train", loss, on_step=True)
        if i % 25 == 0:
            self.print(f"[{self.current_epoch}:{i}] loss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, i):
        tile, mask = batch
        out = self(tile)
        self.iou.update(out.argmax(1), mask)
        self.seen.append(nn.functional.cross_entropy(out, mask))

    def on_validation_epoch_end(self):
        mean = torch.stack(self.seen).mean()
        self.seen.clear()
        every = self.all_gather(mean)
        self.log("loss/val", every.mean(), rank_zero_only=False, sync_dist=False)
        self.log("iou/val", self.iou.compute())
        self.iou.reset()
        self.print(f"[{self.current_epoch}] validation {every.mean().item():.4f}", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--max_epochs", type=int, default=3)
    cli.add_argument("--lr", type=float, default=2e-3)
    cli.add_argument("--workers", type=int, default=1)
    cli.add_argument("--pg_timeout", type=int, default=1800)
    options = cli.parse_args()
    pl.seed_everything(3, workers=True)
    checkpoint = ModelCheckpoint(dirpath="weights", monitor="loss/val", save_top_k=2, auto_insert_metric_name=False)
    trainer = pl.Trainer(max_epochs=options.max_epochs, accelerator="auto", devices=2 if torch.cuda.is_available() else 2,
                         strategy=DDPStrategy(timeout=datetime.timedelta(seconds=options.pg_timeout)),
                         logger=CSVLogger("runs"), callbacks=[checkpoint, LearningRateMonitor()], enable_progress_bar=False,
                         enable_model_summary=False, num_sanity_val_steps=2, gradient_clip_val=1.0, accumulate_grad_batches=2)
    trainer.fit(Segmenter(options.lr), datamodule=TilesModule(options.workers))
    trainer.print("best", checkpoint.best_model_path, flush=True)
