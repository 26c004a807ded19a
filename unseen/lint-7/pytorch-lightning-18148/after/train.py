import lightning.pytorch as pl
from lightning.pytorch.loggers import TensorBoardLogger

from project.data import SpectraModule
from project.model import SpectraNet
from run_callbacks import RunDescription

if __name__ == "__main__":
    options = {"lr": 3e-4, "width": 512, "batch": 64}
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=4,
        strategy="ddp",
        max_epochs=40,
        logger=TensorBoardLogger("runs", name="spectra"),
        callbacks=[RunDescription(options)],
    )
    trainer.fit(SpectraNet(options["width"], options["lr"]), SpectraModule(options["batch"]))
