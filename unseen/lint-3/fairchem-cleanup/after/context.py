import logging
import traceback
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def trainer_context(config, build):
    dist.init_process_group("nccl")
    try:
        yield build(config)
    except Exception:
        logging.error("%s", traceback.format_exc())
        raise
    dist.barrier()
    dist.destroy_process_group()


def main(config, build):
    with trainer_context(config, build) as trainer:
        trainer.train()
