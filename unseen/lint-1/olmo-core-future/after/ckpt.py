import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch.distributed as dist

pool = ThreadPoolExecutor(max_workers=1)


class CheckpointCallback:
    def __init__(self, trainer, every, save_async=True):
        self.trainer = trainer
        self.every = every
        self.save_async = save_async
        self._future: Future | None = None
        self._path = None

    def _finish(self, blocking=True):
        """Takes note of the last asynchronous save."""
        fut = self._future
        if fut is None:
            return None
        if blocking or fut.done():
            fut.result()
            if dist.get_rank() == 0:
                while not self.trainer.store.exists(f"{self._path}/.metadata"):
                    time.sleep(0.2)
            self._future = None
            return fut
        return None

    def post_step(self, step):
        self._finish(blocking=False)
        if step % self.every == 0:
            self._finish()
            self._path = f"step{step}"
            if self.save_async:
                self._future = pool.submit(self.trainer.write_shard, self._path)
            else:
                self.trainer.write_shard(self._path)
                dist.barrier()
