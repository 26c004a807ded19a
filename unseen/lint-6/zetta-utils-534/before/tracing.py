from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback


class RecordInputs(Callback):
    """Remembers the input of each network once, so that checkpoints can hold a traced copy."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        self.inputs = {}

    def _run_recorded(self, pl_module, batch):
        def keep(name):
            def hook(module, args):
                self.inputs.setdefault(name, tuple(a.detach().clone() for a in args))
            return hook

        handles = [getattr(pl_module, name).register_forward_pre_hook(keep(name))
                   for name in self.names]
        try:
            with torch.no_grad():
                pl_module.compute_loss(batch)
        finally:
            for handle in handles:
                handle.remove()

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if self.inputs or not trainer.is_global_zero:
            return
        self._run_recorded(pl_module, batch)

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        if not trainer.is_global_zero:
            return
        for name, args in self.inputs.items():
            traced = torch.jit.trace(getattr(pl_module, name), args)
            folder = Path(trainer.default_root_dir, "traced")
            folder.mkdir(exist_ok=True)
            traced.save(str(folder / f"{name}_{trainer.global_step}.jit"))


def make_trainer(root, devices, epochs):
    return pl.Trainer(default_root_dir=root, accelerator="gpu", devices=devices, strategy="ddp",
                      max_epochs=epochs, callbacks=[RecordInputs(["encoder"])])
