"""Numbers on their way from a GPU to the host, for which nobody waits until they are read."""

import torch


class Later:
    """Numbers of one tensor, copied to the host behind what is queued.

    A read waits for the copy alone, not for what was queued after it: the GPU keeps its work.
    """

    def __init__(self, tensor):
        self._kept, self._event = tensor, None
        if tensor.is_cuda:
            # The memory of the tensor stays until it was read: it may be of another stream than the copy's.
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(tensor.device))

    def is_there(self):
        """Whether a read returns at once."""
        return self._event is None or self._event.query()

    def read(self):
        """The numbers, as nested lists."""
        if self._event is None:
            return self._kept.tolist()
        self._event.synchronize()
        return self._host.tolist()


class Aside:
    """A stream of its own for what training need not wait for; nothing of the kind for other devices."""

    def __init__(self):
        self._streams = {}

    def after(self, device):
        """A context in which work is queued after all that is queued now, and before nothing of it."""
        if device.type != "cuda":
            return _Nothing()
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        return torch.cuda.stream(stream)


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False
