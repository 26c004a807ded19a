import csv
from pathlib import Path

import zmq
from lightning.pytorch.callbacks import Callback


class CSVHistory(Callback):
    """Writes one row of metrics after each validation epoch."""

    def __init__(self, path, columns):
        super().__init__()
        self.path = Path(path)
        self.columns = columns
        self.ready = False

    def _start_file(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "w", newline="") as f:
            csv.DictWriter(f, fieldnames=self.columns).writeheader()
        self.ready = True

    def on_validation_epoch_end(self, trainer, pl_module):
        metrics = trainer.callback_metrics
        if trainer.is_global_zero:
            if not self.ready:
                self._start_file()
            row = {}
            for name in self.columns:
                if name == "epoch":
                    row[name] = trainer.current_epoch
                else:
                    value = metrics.get(name)
                    row[name] = None if value is None else value.item()
            with open(self.path, "a", newline="") as f:
                csv.DictWriter(f, fieldnames=self.columns).writerow(row)
        trainer.strategy.barrier()


class ProgressOverSocket(Callback):
    def __init__(self, address):
        super().__init__()
        self.address = address
        self.socket = None

    def setup(self, trainer, pl_module, stage):
        if trainer.is_global_zero and self.socket is None:
            self.socket = zmq.Context().socket(zmq.PUB)
            self.socket.connect(self.address)

    def on_train_epoch_end(self, trainer, pl_module):
        logs = trainer.callback_metrics
        if trainer.is_global_zero:
            self.socket.send_json(
                {"event": "epoch_end", "logs": {k: float(v) for k, v in logs.items()}}
            )
        trainer.strategy.barrier()
