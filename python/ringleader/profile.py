"""Records some steps of each rank for ``ringleader trace``.

``RINGLEADER_PROFILE=steps:50-55`` records steps 50 to 55 of every rank once :func:`start` was called; without the variable it
does nothing. Steps are counted by calls of PyTorch's optimizers, so that all ranks record the same ones. Each rank writes
``timeline-rank3.json.gz`` into ``RINGLEADER_PROFILE_DIR`` (default: the working directory). A failure to record is printed and
never stops the job. ``steps:50-55,stacks`` records Python's calls, too: advice then names the line of the program, each call of the
recorded steps costs time, and files grow. Steps, and forward, backward, optimizer and data loading within them, carry NVTX ranges, so that ``nsys`` sees
them too.
"""

import os
import re
import shutil
import sys

from ringleader._ranges import Ranges

ROOM_BYTES = 256 << 20
_recording = None


def window(text):
    """First and last step of ``steps:50-55``, ``steps:50`` or ``steps:50-55,stacks``; None if the text says nothing of the kind."""
    match = re.fullmatch(r"steps:(\d+)(?:-(\d+))?(?:,stacks)?", text.strip())
    if not match:
        return None
    first = int(match[1])
    last = int(match[2] or first)
    return (first, last) if last >= first else None


def with_stacks(text):
    """Whether ``steps:50-55,stacks`` asks for Python's calls."""
    return text.strip().endswith(",stacks")


class Recording:
    """One rank's recording."""

    def __init__(self, torch, first, last, folder, rank, stacks=False):
        self.torch, self.first, self.last, self.rank = torch, first, last, rank
        self.path = os.path.join(folder, f"timeline-rank{rank}.json.gz")
        self.stacks = stacks
        self.step = 0
        self.profiler = None
        self.ranges = Ranges(torch)

    def after_optimizer(self, optimizer, *_):
        """A step ends: with several optimizers, with the one that was first seen."""
        if self.owner is None:
            self.owner = id(optimizer)
        if id(optimizer) != self.owner:
            return
        try:
            self._next()
        except Exception as error:  # a job must not fail because it is watched
            self.profiler = None
            self.ranges.remove()
            print(f"ringleader: rank {self.rank} was not recorded: {error}", file=sys.stderr)

    owner = None

    def _next(self):
        self.step += 1
        self.ranges.pop("optimizer")
        if self.profiler is not None:
            self._mark(False)
            self.profiler.step()
            if self.step > self.last:
                self._end()
            else:
                self._mark(True)
        elif self.step == self.first:
            self._begin()
            self._mark(True)

    def _begin(self):
        free = shutil.disk_usage(os.path.dirname(self.path) or ".").free
        if free < ROOM_BYTES:
            raise OSError(f"{free >> 20} MiB are free, and a timeline may take {ROOM_BYTES >> 20} MiB")
        kinds = [self.torch.profiler.ProfilerActivity.CPU]
        if self.torch.cuda.is_available():
            kinds.append(self.torch.profiler.ProfilerActivity.CUDA)
        self.profiler = self.torch.profiler.profile(activities=kinds, with_stack=self.stacks)
        self.profiler.__enter__()
        self.ranges.install()

    def _end(self):
        profiler, self.profiler = self.profiler, None
        self.ranges.remove()
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()
        profiler.__exit__(None, None, None)
        profiler.export_chrome_trace(self.path)
        print(f"ringleader: rank {self.rank} recorded steps {self.first} to {self.last} in {self.path}", file=sys.stderr)

    def _mark(self, begin):
        if begin:
            self.ranges.push(f"step {self.step}")
        else:
            self.ranges.pop(f"step {self.step - 1}")


def start():
    """Begins to count steps if ``RINGLEADER_PROFILE`` asks for some. Answers whether it does."""
    global _recording
    asked = os.environ.get("RINGLEADER_PROFILE")
    if not asked or _recording is not None:
        return _recording is not None
    steps = window(asked)
    if steps is None:
        print(f"ringleader: RINGLEADER_PROFILE={asked} is not steps:FIRST-LAST or steps:FIRST-LAST,stacks; nothing is recorded", file=sys.stderr)
        return False
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    folder = os.environ.get("RINGLEADER_PROFILE_DIR") or "."
    os.makedirs(folder, exist_ok=True)
    _recording = Recording(torch, *steps, folder, os.environ.get("RANK", "0"), with_stacks(asked))
    register_optimizer_step_post_hook(_recording.after_optimizer)
    return True
