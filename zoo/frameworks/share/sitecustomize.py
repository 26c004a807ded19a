"""On the path of a job with more ranks than GPUs (run.py --share): the ranks share the GPUs, and NCCL takes each for a host of its own,
because it refuses two ranks of one host on one GPU."""

import os

if "RANK" in os.environ:
    os.environ["NCCL_HOSTID"] = "n" + os.environ["RANK"]
    if "LOCAL_RANK" in os.environ:
        os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % int(os.environ["SHARED_GPUS"]))
