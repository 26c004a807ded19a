import argparse
from datetime import timedelta

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, n, seed=0):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 7919 + i)
        label = i % 12
        item = {"x": torch.randn(512, generator=g) + 0.1 * label, "label": label}
        return item["x"], item["label"]


class Classifier(L.LightningModule):
    def __init__(self, lr=1e-3, classes=12):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, classes))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        if batch_idx % 20 == 0:
            self.print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        acc = (logits.argmax(1) == y).float().mean()
        self.log("val_loss", loss, sync_dist=True)
        self.log("val_acc", acc)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class EpochReport(Callback):
    def on_train_epoch_end(self, trainer, module):
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch} finished", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    L.seed_everything(11)

    train_loader = DataLoader(Spectra(12288), batch_size=64, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(Spectra(1024, seed=3), batch_size=64, num_workers=args.workers)
    model = Classifier()
    if args.compile:
        model.net = torch.compile(model.net)
    cuda = torch.cuda.is_available()
    trainer = L.Trainer(
        accelerator="gpu" if cuda else "cpu",
        devices=args.devices,
        strategy=DDPStrategy(timeout=timedelta(seconds=args.timeout)),
        max_epochs=args.epochs,
        precision=args.precision,
        callbacks=[ModelCheckpoint(monitor="val_loss", save_last=True),
                   EarlyStopping(monitor="val_loss", patience=20), EpochReport()],
        enable_progress_bar=False,
        log_every_n_steps=20,
        logger=False,
    )
    trainer.fit(model, train_loader, val_loader)
    trainer.print("fit done", trainer.callback_metrics.get("val_loss"), flush=True)


if __name__ == "__main__":
    main()
