import glob, os
from torch.utils.data import IterableDataset


class LogStream(IterableDataset):
    """jsonl shards, tokenised on the fly"""

    def __init__(self, root, tok, rank, world):
        files = sorted(glob.glob(os.path.join(root, "*.jsonl")))
        self.files = files[rank::world]
        self.rank, self.tok = rank, tok

    def __iter__(self):
        n = 0
        for f in self.files:
            with open(f) as fh:
                for line in fh:
                    n += 1
                    yield self.tok(line)
        print(f"[rank {self.rank}] shard list exhausted: {len(self.files)} files, {n} lines", flush=True)
