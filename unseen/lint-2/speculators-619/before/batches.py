import numpy as np
from torch.utils.data import Sampler


class PackedBatches(Sampler):
    """Batches of at most max_len tokens, the shares of all replicas planned alike on each of them."""

    def __init__(self, lengths, max_len, num_replicas, rank, seed=0):
        assert 0 <= rank < num_replicas
        self.lengths, self.max_len = np.asarray(lengths), max_len
        self.num_replicas, self.rank, self.seed = num_replicas, rank, seed
        self.epoch = 0

    def __iter__(self):
        order = np.random.default_rng(self.seed + self.epoch).permutation(len(self.lengths))
        packs, cur, used = [], [], 0
        for i in order:
            if used + self.lengths[i] > self.max_len and cur:
                packs.append(cur)
                cur, used = [], 0
            cur.append(int(i))
            used += self.lengths[i]
        full = len(packs) // self.num_replicas * self.num_replicas
        yield from packs[self.rank : full : self.num_replicas]
