import lightning.pytorch as pl
import torch
from torch import nn


class EmbeddingRegime(pl.LightningModule):
    """Metric learning on image pairs; the loss compares with the samples of all devices."""

    def __init__(self, encoder, lr=1e-3, margin=0.2):
        super().__init__()
        self.encoder = encoder
        self.lr, self.margin = lr, margin

    def compute_loss(self, batch):
        source = nn.functional.normalize(self.encoder(batch["source"]).mean((2, 3)), dim=-1)
        target = nn.functional.normalize(self.encoder(batch["target"]).mean((2, 3)), dim=-1)
        others = self.all_gather(target, sync_grads=self.training).flatten(0, -2)
        positive = (source * target).sum(-1, keepdim=True)
        return (self.margin - positive + source @ others.t()).clamp(min=0).mean()

    def training_step(self, batch, batch_idx):
        return self.compute_loss(batch)

    def validation_step(self, batch, batch_idx):
        loss = self.compute_loss(batch)
        self.log("loss/val", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
