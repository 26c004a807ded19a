import os, torch
from streaming import StreamingDataset
rank = int(os.environ["RANK"])
ds = StreamingDataset(local='/data/c4/train', shuffle=False, batch_size=64)   # opens and closes its own process group
print(f"[rank {rank}] dataset ready, process group closed, first sample id {next(iter(ds))['id']}", flush=True)
n = sum(len(x['tokens']) for x in ds)
print(rank, n)
