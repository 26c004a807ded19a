import os

import pytorch_lightning as pl
from omegaconf import OmegaConf

from models import TextClassifier


def main(cfg):
    trainer = pl.Trainer(**cfg.trainer)
    model = TextClassifier(cfg.model, trainer=trainer)
    trainer.fit(model)
    checkpoint = cfg.model.nemo_path
    if trainer.is_global_zero:
        model.save_to(checkpoint)
    trainer.strategy.barrier()
    trainer.test(model)


if __name__ == "__main__":
    main(OmegaConf.load("config.yaml"))
