import logging

import torch

from validation import Validation

log = logging.getLogger(__name__)


class Run:
    def __init__(self, cfg, accelerator, pipeline):
        self.cfg = cfg
        self.accelerator = accelerator
        self.validation = Validation(cfg, accelerator, pipeline)

    def benchmark_base_model(self):
        """Images of the untouched model, for comparison."""
        if self.cfg.disable_benchmark or self.validation.exists("base_model"):
            return
        if self.cfg.validation_multigpu != "batch-parallel" and not self.accelerator.is_main_process:
            return
        log.info("benchmarking the base model")
        self.validation.run(step=0, kind="base_model")

    def start(self):
        self.benchmark_base_model()
        self.accelerator.wait_for_everyone()
        self.fit()

    def fit(self):
        for step in range(self.cfg.steps):
            self.train_step(step)

    def train_step(self, step):
        raise NotImplementedError
