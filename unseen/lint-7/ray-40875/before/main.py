import lightning.pytorch as pl
import ray.train.lightning as rtl
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

from report_callback import ReportEveryEpoch
from tabular import TabularData, TabularNet


def worker(config):
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        accelerator="auto",
        devices="auto",
        strategy=rtl.RayDDPStrategy(),
        plugins=[rtl.RayLightningEnvironment()],
        callbacks=[ReportEveryEpoch()],
        enable_checkpointing=False,
    )
    trainer = rtl.prepare_trainer(trainer)
    trainer.fit(TabularNet(config["width"]), datamodule=TabularData())


if __name__ == "__main__":
    TorchTrainer(
        worker,
        train_loop_config={"epochs": 20, "width": 256},
        scaling_config=ScalingConfig(num_workers=8, use_gpu=True),
    ).fit()
