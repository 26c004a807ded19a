class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.val_acc = torchmetrics.Accuracy()
    def validation_step(self, batch, _):
        x, y = batch
        self.val_acc.update(self(x).softmax(-1), y)
        self.log("val/acc", self.val_acc, on_step=False, on_epoch=True)
