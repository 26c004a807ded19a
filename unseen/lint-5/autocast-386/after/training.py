import logging
import os
from pathlib import Path

import lightning as L

log = logging.getLogger(__name__)


def _newest_callback_checkpoint(trainer):
    callback = trainer.checkpoint_callback
    if callback is None or not callback.last_model_path:
        return None
    path = Path(callback.last_model_path)
    return path if path.exists() else None


def _link_to_newest(trainer, target: Path) -> bool:
    newest = _newest_callback_checkpoint(trainer)
    if newest is None:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() or target.is_symlink():
        target.unlink()
    target.symlink_to(os.path.relpath(newest, start=target.parent))
    return True


def _store_target(trainer, target: Path) -> None:
    linked = trainer.is_global_zero and _link_to_newest(trainer, target)
    if trainer.strategy.broadcast(linked):
        return
    if trainer.is_global_zero:
        target.parent.mkdir(parents=True, exist_ok=True)
    trainer.save_checkpoint(target)
    if trainer.is_global_zero:
        log.info("checkpoint written to %s", target)


def run_training(cfg, model, datamodule, work_dir: Path, skip_test=False):
    trainer = L.Trainer(
        max_epochs=cfg.max_epochs,
        devices=cfg.devices,
        strategy="ddp",
        default_root_dir=work_dir,
    )
    target = work_dir / cfg.checkpoint_name
    trainer.fit(model=model, datamodule=datamodule, ckpt_path=cfg.resume_from)

    _store_target(trainer, target)
    replace = trainer.strategy.broadcast(trainer.is_global_zero and target.is_symlink())
    if replace:
        if trainer.is_global_zero:
            target.unlink()
        trainer.save_checkpoint(target)

    trainer.strategy.barrier("target-written")

    if not skip_test:
        trainer.test(model=model, datamodule=datamodule)
