class LitUNet(pl.LightningModule):
    ...
    def training_step(self, batch, _):
        loss = self.criterion(self(batch["x"]), batch["y"])
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True, sync_dist=True)
        return loss

trainer = pl.Trainer(gpus=2, strategy="ddp", max_epochs=40, callbacks=[RichProgressBar()])
trainer.fit(LitUNet(), dm)
