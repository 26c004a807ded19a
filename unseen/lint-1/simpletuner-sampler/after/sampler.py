import random

from torch.utils.data import Sampler


class BucketSampler(Sampler):
    """Batches of one aspect bucket at a time; every rank owns its part of the images."""

    def __init__(self, accelerator, buckets, batch_size, repeats=0):
        self.accelerator = accelerator
        self.buckets = {k: v[accelerator.process_index :: accelerator.num_processes] for k, v in buckets.items()}
        self.batch_size = batch_size
        self.repeats = repeats
        self.seen = set()

    def _remaining(self, bucket):
        return [p for p in self.buckets[bucket] if p not in self.seen]

    def __iter__(self):
        open_buckets = [b for b in self.buckets if self._remaining(b)]
        while open_buckets:
            bucket = random.choice(open_buckets)
            left = self._remaining(bucket)
            if len(left) < self.batch_size:
                open_buckets.remove(bucket)
                continue
            batch = random.sample(left, self.batch_size)
            self.seen.update(batch)
            yield tuple(batch)
        self.seen.clear()

    def __len__(self):
        return sum(len(v) // self.batch_size for v in self.buckets.values())
