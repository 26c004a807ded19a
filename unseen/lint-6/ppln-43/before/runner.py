from collections import defaultdict

import torch


class Buffer:
    def __init__(self):
        self.clear()

    def clear(self):
        self.values, self.counts, self.output = defaultdict(list), defaultdict(list), {}

    def update(self, numbers, count):
        for key, value in numbers.items():
            self.values[key].append(value * count)
            self.counts[key].append(count)

    def average(self):
        self.output = {k: sum(v) / sum(self.counts[k]) for k, v in self.values.items()}


class Runner:
    """Runs epochs on a DistributedDataParallel model; hooks come in the order of their priority."""

    def __init__(self, model, optimizer, batch_processor, work_dir, hooks):
        self.model, self.optimizer, self.batch_processor = model, optimizer, batch_processor
        self.work_dir, self.hooks = work_dir, hooks
        self.buffer, self.stop_training, self.epoch = Buffer(), False, 0

    def call(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def run_epoch(self, loader, training):
        self.call("before_epoch")
        self.model.train(training)
        with torch.set_grad_enabled(training):
            for batch in loader:
                loss, numbers = self.batch_processor(self.model, batch, training)
                if training:
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                self.buffer.update(numbers, len(batch[0]))
                self.call("after_iter")
        self.call("after_epoch")

    def run(self, train_loader, val_loader, epochs):
        for self.epoch in range(epochs):
            train_loader.sampler.set_epoch(self.epoch)
            self.run_epoch(train_loader, True)
            self.run_epoch(val_loader, False)
            self.call("after_val_epoch")
            if self.stop_training:
                break
