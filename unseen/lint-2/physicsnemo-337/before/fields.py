import h5py
import numpy as np
import torch
from torch.utils.data import IterableDataset


class YearlyFields(IterableDataset):
    """Consecutive states out of one HDF5 file per year; every rank reads its share."""

    def __init__(self, paths, steps=1, stride=1, rank=0, world=1, seed=0):
        self.paths, self.steps, self.stride = paths, steps, stride
        self.rank, self.world, self.seed = rank, world, seed
        self.epoch = 0
        with h5py.File(paths[0], "r") as f:
            # the last states have no successor
            self.per_year = f["fields"].shape[0] - steps * stride
            self.shape = f["fields"].shape[2:]

    def __iter__(self):
        rng = np.random.default_rng(self.seed + self.epoch)
        order = rng.permutation(self.per_year * len(self.paths))
        for k in order[self.rank :: self.world]:
            year, t = divmod(int(k), self.per_year)
            with h5py.File(self.paths[year], "r") as f:
                x = f["fields"][t]
                y = f["fields"][t + self.stride * self.steps]
            yield torch.from_numpy(x), torch.from_numpy(y)
