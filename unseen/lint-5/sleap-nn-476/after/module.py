import lightning.pytorch as pl
import torch
from torch import nn


class PoseModule(pl.LightningModule):
    def __init__(self, net, lr):
        super().__init__()
        self.net = net
        self.lr = lr
        self.loss = nn.MSELoss()

    def training_step(self, batch, batch_idx):
        loss = self.loss(self.net(batch["image"]), batch["confmap"])
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = self.loss(self.net(batch["image"]), batch["confmap"])
        self.log("val_loss", loss, on_step=False, on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
