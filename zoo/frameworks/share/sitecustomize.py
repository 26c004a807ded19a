"""On the path of a job with more ranks than GPUs (run.py --share): the ranks share the GPUs, and NCCL takes each for a host of its own,
because it refuses two ranks of one host on one GPU."""

import os

LOCAL = os.environ.get("LOCAL_RANK")
if LOCAL is not None or "RANK" in os.environ:
    os.environ["NCCL_HOSTID"] = "n" + os.environ.get("RANK", LOCAL)
if LOCAL is not None:
    os.environ["LOCAL_RANK"] = str(int(LOCAL) % int(os.environ["SHARED_GPUS"]))
