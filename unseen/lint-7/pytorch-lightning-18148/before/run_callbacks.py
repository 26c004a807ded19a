import json
import subprocess
from pathlib import Path

from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_only


class RunDescription(Callback):
    """Stores the options and the revision of the code beside the logs."""

    def __init__(self, options):
        self.options = dict(options)

    @rank_zero_only
    def on_fit_start(self, trainer, pl_module):
        folder = Path(trainer.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        revision = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        record = {
            "options": self.options,
            "revision": revision,
            "parameters": sum(p.numel() for p in pl_module.parameters()),
            "world_size": trainer.world_size,
        }
        (folder / "run.json").write_text(json.dumps(record, indent=2, default=str))

    @rank_zero_only
    def on_exception(self, trainer, pl_module, exception):
        print(f"run stopped at step {trainer.global_step}: {exception!r}")
