import itertools
import math

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def pack(lengths, capacity):
    bins, room = [], []
    for index, length in enumerate(lengths):
        for slot, left in enumerate(room):
            if length <= left:
                bins[slot].append(index)
                room[slot] -= length
                break
        else:
            bins.append([index])
            room.append(capacity - length)
    return bins


class PackedLoader:
    """Unpadded batches: each process packs the samples of its own sampler."""

    def __init__(self, dataset, collate, sampler, max_length, batch_size, devices):
        self.dataset, self.collate, self.sampler = dataset, collate, sampler
        self.lengths = np.array([len(x["input_ids"]) for x in dataset])
        self.max_length, self.batch_size, self.devices = max_length, batch_size, devices

    def _estimate(self):
        per_device = self.lengths.sum() // self.devices
        return math.floor(0.99 * per_device // self.max_length // self.batch_size) - 1

    def __len__(self):
        return max(1, self._estimate())

    def __iter__(self):
        self.sampler.set_epoch(self.sampler.epoch + 1)
        own = list(self.sampler)
        bins = [[own[i] for i in b] for b in pack(self.lengths[own], self.max_length)]
        remaining = len(self)
        rows = iter(bins)
        while group := list(itertools.islice(rows, self.batch_size)):
            yield self.collate(
                [{k: np.concatenate([self.dataset[i][k] for i in b]) for k in ("input_ids", "labels")}
                 for b in group]
            )
            remaining -= 1
            if not remaining:
                return


def train(model, dataset, collate, rank, world_size, args):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, seed=args.seed)
    loader = PackedLoader(dataset, collate, sampler, args.max_length, args.batch_size, world_size)
    model = DistributedDataParallel(model.to(rank), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for _ in range(args.epochs):
        for batch in loader:
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
