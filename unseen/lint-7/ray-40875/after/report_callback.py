import os
import shutil
import tempfile

from lightning.pytorch.callbacks import Callback
from ray import train
from ray.train import Checkpoint


class ReportEveryEpoch(Callback):
    """Hands metrics and a checkpoint of each epoch to Ray Train."""

    NAME = "epoch.ckpt"

    def __init__(self):
        context = train.get_context()
        self.trial = context.get_trial_name()
        self.local_rank = context.get_local_rank()
        self.root = os.path.join(tempfile.gettempdir(), self.trial)
        os.makedirs(self.root, exist_ok=True)

    def on_train_epoch_end(self, trainer, pl_module):
        folder = os.path.join(self.root, str(trainer.current_epoch))
        os.makedirs(folder, exist_ok=True)
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics["epoch"] = trainer.current_epoch
        metrics["step"] = trainer.global_step
        trainer.save_checkpoint(os.path.join(folder, self.NAME), weights_only=False)
        train.report(metrics=metrics, checkpoint=Checkpoint.from_directory(folder))
        trainer.strategy.barrier()
        if self.local_rank == 0:
            shutil.rmtree(folder)
