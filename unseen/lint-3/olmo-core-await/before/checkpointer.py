from concurrent.futures import Future
from typing import Optional

import torch.distributed as dist


def barrier():
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


class CheckpointerCallback:
    """Saves in the background; finishes a save when it is done."""

    def __init__(self, checkpointer, interval):
        self.checkpointer, self.interval = checkpointer, interval
        self._future: Optional[Future] = None

    def await_last(self, blocking=True):
        if (fut := self._future) is not None:
            if blocking or fut.done():
                fut.result()
                barrier()
                self._future = None
                return fut
        return None

    def post_train_batch(self, step, state):
        self.await_last(blocking=False)
        if step % self.interval == 0:
            self.await_last()
            self._future = self.checkpointer.save_async(step, state)
