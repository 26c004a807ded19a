import os

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist


def cost(label, patch):
    shape = np.load(label).shape[1:]
    return np.prod([(s + p - 1) // p for s, p in zip(shape, patch)])


def shard(images, labels, patch, gpus):
    rank = int(os.getenv("LOCAL_RANK", "0"))
    work = np.array([cost(label, patch) for label in labels])
    order = np.argsort(work)[::-1]
    parts = [[] for _ in range(gpus)]
    load = np.zeros(gpus)
    for n in order:
        to = int(np.argmin(load))
        parts[to].append((images[n], labels[n]))
        load[to] += work[n]
    return parts[rank]


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
