import lightning.pytorch as pl
import torch


class SegmenterModule(pl.LightningModule):
    def __init__(self, network, criterion, decode, lr):
        super().__init__()
        self.network, self.criterion, self.decode = network, criterion, decode
        self.lr = lr

    def training_step(self, batch, batch_idx):
        images, targets = batch
        losses = self.criterion(self.network(images), targets)
        return sum(losses.values())

    def validation_step(self, batch, batch_idx):
        images, targets = batch
        return {"results": self.decode(self.network(images)), "targets": targets}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
