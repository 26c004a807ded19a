import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Estimator:
    def __init__(self, model, optimizer, loss_fn):
        self.model = DDP(model)
        self.optimizer = optimizer
        self.loss_fn = loss_fn

    def train_epoch(self, data_loader, epoch):
        if hasattr(self.model, "train"):
            self.model.train()
        total, n = 0.0, 0
        with self.model.join():
            for index, batch in enumerate(data_loader):
                features, target = batch
                output = self.model(features)
                loss = self.loss_fn(output, target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                n += 1
        return {"epoch": epoch, "loss": total / n}
