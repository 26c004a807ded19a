import logging

import jax
import wandb

from hosts import broadcast_json

log = logging.getLogger(__name__)


class Tracker:
    """Process 0 owns the run; all processes know its name, for the folder of the checkpoints."""

    def __init__(self, project, config, mode="online"):
        self.primary = jax.process_index() == 0
        self.run = wandb.init(project=project, config=config,
                              mode=mode if self.primary else "disabled")
        identity = {"id": self.run.id, "name": self.run.name} if self.primary else None
        identity = broadcast_json(identity)
        self.id, self.name = identity["id"], identity["name"]
        log.info("process %d of run %s", jax.process_index(), self.name)

    def write(self, metrics, step):
        if not self.primary:
            return
        self.run.log(metrics, step=step)

    def finish(self):
        self.run.finish()
