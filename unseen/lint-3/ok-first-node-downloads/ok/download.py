import os
import time

import torch.distributed as dist


def fetch(url, folder, download):
    signal = os.path.join(folder, f".node_{os.environ['GROUP_RANK']}_done")
    if int(os.environ["LOCAL_RANK"]) == 0:
        os.makedirs(folder, exist_ok=True)
        download(url, folder)
        with open(signal, "w") as f:
            f.write("done")
    while not os.path.exists(signal):
        time.sleep(0.5)
    dist.barrier()
    if int(os.environ["LOCAL_RANK"]) == 0:
        os.remove(signal)
    dist.barrier()
    return folder
