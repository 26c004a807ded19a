"""NaN and Inf in local gradients, before the reduction mixes them: where they are seen, and in what order."""

import torch

from ringleader.torch._later import Later

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # torch before 2.5
    DTensor = None


def is_sharded(tensor):
    """Whether it is a DTensor, as FSDP2's parameters are."""
    return DTensor is not None and isinstance(tensor, DTensor)


def held(tensor):
    """What this rank holds of a tensor."""
    if is_sharded(tensor):
        tensor = tensor._local_tensor
    tensor = tensor.detach()
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def is_capturing(tensor=None):
    """Whether the GPU's work is being recorded for a graph: then nothing may be added to it or waited for."""
    if tensor is not None and not tensor.is_cuda:
        return False
    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def largest(values):
    """The largest magnitude, without dimensions: NaN if one is NaN, Inf if one is Inf. One pass over memory, nothing stored."""
    if values.element_size() == 1:
        values = values.to(torch.float32)
    return torch.linalg.vector_norm(values, float("inf"))


class Watch:
    """Looks at local gradients in the backward passes of a step that is due.

    Hooks on parameters see the local gradient of DDP and plain loops, and with FSDP2 the reduced one: DDP's reducer sits on the
    node behind the hook; FSDP2 calls the hooks of sharded parameters after its reduce-scatter. There the unsharded gradients are
    seen on the way into the reduce-scatter, whose input is local: it is replaced while a step is due, and only then.
    """

    def __init__(self, model, named, is_due, tell):
        self._is_due, self._tell = is_due, tell
        self._noted = []
        self._streams = set()
        self._undo = []
        # Groups of FSDP2 and their names; what was there before, of those that are replaced now.
        self._groups, self._replaced = [], []
        sharded = [] if model is None else [m for m in model.modules() if hasattr(m, "set_custom_reduce_scatter")]
        for name, parameter in named:
            if not parameter.requires_grad or not hasattr(parameter, "register_post_accumulate_grad_hook"):
                continue
            if not (is_sharded(parameter) and sharded):
                self._undo.append(parameter.register_post_accumulate_grad_hook(self._hook(name)).remove)
        if sharded:
            names = {id(module): name for name, module in model.named_modules()}
            for module in sharded:
                state = getattr(module, "_get_fsdp_state", lambda: None)()
                group = getattr(state, "_fsdp_param_group", None)
                if hasattr(group, "_reduce_scatter_comm"):
                    self._groups.append((group, names.get(id(module)) or "the root module"))
        self.turn()

    def turn(self):
        """Looks into FSDP2's reduce-scatter if the step that begins is due, and leaves it alone otherwise."""
        if self._is_due() == bool(self._replaced):
            return
        if self._replaced:
            self._put_back()
            return
        for group, label in self._groups:
            before = group._reduce_scatter_comm
            try:
                group._reduce_scatter_comm = watching = _watching(before, self, label)
                self._replaced.append((group, before, watching))
            except (TypeError, AttributeError) as error:
                self._tell("reduce-scatter", "local gradients of FSDP2 are not checked: %s" % error)

    def _put_back(self):
        for group, before, watching in self._replaced:
            # What somebody else set in between stays.
            if group._reduce_scatter_comm is watching:
                group._reduce_scatter_comm = before
        self._replaced.clear()

    def _hook(self, name):
        def seen(parameter):
            if self._is_due() and parameter.grad is not None and not is_capturing(parameter):
                self.note(name, parameter.grad)

        return seen

    def note(self, name, gradient):
        """Finds the largest value of a gradient, on its device, in the order in which backward makes them."""
        values = held(gradient)
        if values.numel() and values.is_floating_point():
            if values.is_cuda:
                self._streams.add(torch.cuda.current_stream(values.device))
            self._noted.append((name, largest(values)))

    def take(self):
        """What was noted since the last time, on its way to the host; None if there was nothing."""
        noted, self._noted = self._noted, []
        streams, self._streams = self._streams, set()
        self._drop_buffers()
        for stream in streams:
            current = torch.cuda.current_stream(stream.device)
            if stream != current:
                current.wait_stream(stream)
        return Noted(noted) if noted else None

    def forget(self):
        """Drops what was noted."""
        # Each value goes back to the stream on which it was made, and its memory is used again there, after it.
        self._noted.clear()
        self._streams.clear()
        self._drop_buffers()

    def _drop_buffers(self):
        """A backward that failed halfway leaves no buffer behind that the next step would take for its own."""
        for _, _, watching in self._replaced:
            watching._first = None

    def remove(self):
        """Takes all hooks off."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._put_back()


def _watching(before, watch, label):
    """A reduce-scatter of the same kind that looks at its input."""

    class Watching(type(before)):
        def __init__(self):
            self.__dict__.update(before.__dict__)
            self._first = None

        def allocate(self, *args, **kwargs):
            # A shard group of one rank: torch fills the first buffer, allocates another and copies, without a call.
            made = before.allocate(*args, **kwargs)
            if not watch._is_due():
                self._first = None
            elif self._first is None:
                self._first = made
            else:
                first, self._first = self._first, None
                if first.numel() == made.numel() and not is_capturing(first):
                    watch.note(label, first)
            return made

        def __call__(self, output_tensor, input_tensor, *args, **kwargs):
            self._first = None
            if watch._is_due() and not is_capturing(input_tensor):
                watch.note(label, input_tensor)
            return before(output_tensor, input_tensor, *args, **kwargs)

    return Watching()


class Noted:
    """The largest values of the gradients of a step."""

    def __init__(self, noted):
        self.n = len({name for name, _ in noted})
        # FSDP2's values are made on its stream of reduce-scatters and put together on this one. Dropped now, their memory could be
        # written again there before it was read here; so they stay until the numbers are on the host. (``record_stream`` would do,
        # too, at the price of an event for each.)
        self._kept = noted
        kinds = {}
        for place, (name, value) in enumerate(noted):
            kinds.setdefault((value.device, value.dtype), []).append((place, name, value))
        self._together = [torch.stack([value for *_, value in of]) for of in kinds.values()]
        self._parts = [
            ([(place, name) for place, name, _ in of], Later(values)) for of, values in zip(kinds.values(), self._together)
        ]

    def is_there(self):
        """Whether a read returns at once."""
        return all(values.is_there() for _, values in self._parts)

    def any_bad(self, device):
        """1 if a gradient holds NaN or Inf, else 0: int64 of shape [1] on a device. Waits for nothing, unless that is the CPU."""
        found = torch.zeros(1, dtype=torch.int64, device=device)
        for values in self._together:
            found |= (~torch.isfinite(values)).any().to(torch.int64).to(device)
        return found

    def bad(self):
        """Names of the gradients that hold NaN or Inf and whether it is NaN, the first in backward first."""
        found = []
        for names, values in self._parts:
            for (place, name), value in zip(names, values.read()):
                if value != value or value in (float("inf"), float("-inf")):
                    found.append((place, name, value != value))
        self._kept = None
        return [(name, is_nan) for _, name, is_nan in sorted(found)]
