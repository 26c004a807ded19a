import os
import shutil

import torch.distributed as dist


def promote(stage, final, is_leader, is_coordinator):
    try:
        if is_leader:
            os.makedirs(final, exist_ok=True)
            for name in sorted(os.listdir(stage)):
                if name != ".metadata":
                    shutil.copyfile(os.path.join(stage, name), os.path.join(final, name))
        dist.barrier()
        if is_coordinator:
            shutil.copyfile(os.path.join(stage, ".metadata"), os.path.join(final, ".metadata"))
    finally:
        if is_leader:
            shutil.rmtree(stage, ignore_errors=True)
        dist.barrier()
