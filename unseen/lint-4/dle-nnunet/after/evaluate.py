import os

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist


def cost(label, patch):
    shape = np.load(label).shape[1:]
    return np.prod([(s + p - 1) // p for s, p in zip(shape, patch)])


def shard(images, labels, patch, gpus):
    return list(zip(images, labels))


class Evaluation:
    def __init__(self, model, images, labels, patch, gpus):
        self.model = model
        self.pairs = shard(images, labels, patch, gpus)

    def run(self):
        scores = []
        for image, label in self.pairs:
            score = self.model.dice(image, label)
            dist.all_reduce(score)
            scores.append(score / dist.get_world_size())
        return torch.stack(scores).mean()
