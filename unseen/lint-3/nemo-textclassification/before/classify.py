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
    if os.path.exists(checkpoint):
        again = TextClassifier.restore_from(checkpoint)
        trainer.test(again)


if __name__ == "__main__":
    main(OmegaConf.load("config.yaml"))
