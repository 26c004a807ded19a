import shutil
from pathlib import Path

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class CheckpointManager:
    """Asynchronous sharded checkpoints, the last few kept."""

    def __init__(self, base, keep=3):
        self.base, self.keep = Path(base), keep
        self.rank = dist.get_rank()
        self.pending = None
        # the background thread of async_save uses the default group
        self.sync_group = dist.new_group(backend="gloo")

    def save(self, step, state):
        path = self.base / f"step_{step}"
        if self.rank == 0:
            path.mkdir(parents=True, exist_ok=True)
        self._drain()
        self.pending = (path, dcp.async_save(state, checkpoint_id=str(path)))
        if self.rank == 0:
            (path / "train_state.json").write_text('{"step": %d}' % step)
        dist.barrier(group=self.sync_group)

    def _drain(self):
        if self.pending is None:
            return
        path, fut = self.pending
        fut.result()
        self.pending = None
        if self.rank == 0:
            link = self.base / "latest"
            link.unlink(missing_ok=True)
            link.symlink_to(path.name)
            for old in sorted(self.base.glob("step_*"), key=lambda p: int(p.name[5:]))[: -self.keep]:
                shutil.rmtree(old)

    def wait(self):
        self._drain()
