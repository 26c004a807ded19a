import time

import torch
import torch.distributed as dist


class MetricsProcessor:
    def __init__(self, log_freq, writer):
        self.log_freq = log_freq
        self.writer = writer
        self.tokens = 0
        self.since = time.perf_counter()

    def should_log(self, step):
        return step == 1 or step % self.log_freq == 0

    def log(self, step, average, largest, grad_norm):
        speed = self.tokens / (time.perf_counter() - self.since)
        if self.writer is not None:
            self.writer.log({"loss": average, "max": largest, "norm": grad_norm, "tps": speed}, step)
        self.tokens, self.since = 0, time.perf_counter()


class Trainer:
    def __init__(self, model, optimizer, loader, mesh, config):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.mesh, self.config = mesh, config
        writer = config.make_writer() if dist.get_rank() == 0 else None
        self.metrics = MetricsProcessor(config.log_freq, writer)
        self.step = 0

    def _reduce(self, value, op):
        value = value.detach().clone()
        dist.all_reduce(value, op=op, group=self.mesh.get_group("dp"))
        return value.item()

    def train_step(self, batches):
        self.optimizer.zero_grad()
        losses = []
        for _ in range(self.config.accumulation):
            inputs, labels = next(batches)
            self.metrics.tokens += labels.numel()
            loss = self.model(inputs, labels) / self.config.accumulation
            loss.backward()
            losses.append(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
        self.optimizer.step()

        if not self.metrics.should_log(self.step):
            return

        loss = torch.stack(losses).sum()
        average = self._reduce(loss, dist.ReduceOp.AVG)
        largest = self._reduce(loss, dist.ReduceOp.MAX)
        self.metrics.log(self.step, average, largest, norm.item())

    def _endless(self):
        while True:
            yield from self.loader

    def train(self):
        batches = self._endless()
        while self.step < self.config.steps:
            self.step += 1
            self.train_step(batches)
