import math

from hooks.base import Hook


class EarlyStoppingHook(Hook):
    def __init__(self, metric="base_loss", mode="min", patience=3):
        self.metric, self.patience = metric, patience
        self.sign = 1 if mode == "min" else -1
        self.best, self.waited = math.inf, 0

    def after_val_epoch(self, runner):
        value = self.sign * runner.buffer.output[self.metric]
        if value < self.best:
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            runner.stop_training = True
