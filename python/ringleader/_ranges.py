"""Named ranges around the parts of a step while it is recorded: forward, backward, optimizer and data loading.

Each range is a ``record_function`` of PyTorch's profiler and, with a GPU, an NVTX range, so that both kinds of timelines show it.
:meth:`Ranges.install` hooks into PyTorch and :meth:`Ranges.remove` undoes all of it: outside the recorded steps nothing is slower.
"""

import functools


class Ranges:
    """The ranges of one recording."""

    def __init__(self, torch):
        self.torch, self.is_gpu = torch, torch.cuda.is_available()
        self.open = {}
        self.depth = 0
        self.undo = []

    def push(self, name):
        """Opens a range; one of a name is open at a time."""
        if name in self.open:
            return
        record = self.torch.profiler.record_function(name)
        record.__enter__()
        if self.is_gpu:
            self.torch.cuda.nvtx.range_push(name)
        self.open[name] = record

    def pop(self, name):
        """Closes a range if it is open."""
        record = self.open.pop(name, None)
        if record is None:
            return
        if self.is_gpu:
            self.torch.cuda.nvtx.range_pop()
        record.__exit__(None, None, None)

    def install(self):
        """Begins to name the parts of steps."""
        modules = self.torch.nn.modules.module
        self._hook(modules.register_module_forward_pre_hook(self._before_forward))
        self._hook(modules.register_module_forward_hook(self._after_forward, always_call=True))
        # The recording's own hook, which ends a step, closes this one.
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._hook(register_optimizer_step_pre_hook(lambda *_: self.push("optimizer")))
        self._wrap(self.torch.autograd, "backward", "backward")
        self._wrap(self.torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", "data loading")

    def remove(self):
        """Ends all ranges and takes out all hooks."""
        while self.undo:
            self.undo.pop()()
        for name in list(self.open):
            self.pop(name)
        self.depth = 0

    def _hook(self, handle):
        self.undo.append(handle.remove)

    def _wrap(self, owner, attribute, name):
        inner = getattr(owner, attribute)

        @functools.wraps(inner)
        def outer(*args, **kwargs):
            self.push(name)
            try:
                return inner(*args, **kwargs)
            finally:
                self.pop(name)

        setattr(owner, attribute, outer)
        self.undo.append(lambda: setattr(owner, attribute, inner))

    def _before_forward(self, *_):
        # Recomputed activations and hooks of backward call modules, too.
        if self.depth == 0 and "backward" not in self.open:
            self.push("forward")
        self.depth += 1

    def _after_forward(self, *_):
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.pop("forward")
