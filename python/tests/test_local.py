"""What is noted in backward: how long it is kept, and what a backward that failed leaves."""

import gc
import weakref

import pytest
import torch

from ringleader.torch import _guard, guard
from ringleader.torch._local import Noted, Watch, _watching


def watching(allocations):
    """A watch that is always due, and a reduce-scatter of a group of one rank as FSDP2 calls it."""
    watch = Watch(None, [], lambda: True, None)

    class Before:
        def allocate(self, numel):
            allocations.append(torch.zeros(numel))
            return allocations[-1]

    of_group = _watching(Before(), watch, "layer")
    watch._replaced.append((None, None, of_group))
    return watch, of_group


def backward(of_group, value, fails=False):
    """FSDP2's order: a buffer, filled with the gradients; then that of the output, into which it is copied."""
    first = of_group.allocate(4)
    if fails:
        return
    first.fill_(value)
    of_group.allocate(4).copy_(first)


def test_a_backward_that_failed_halfway_leaves_nothing_to_the_next():
    buffers = []
    watch, of_group = watching(buffers)
    backward(of_group, 1.0)
    assert watch.take().bad() == []
    for drop in (watch.forget, watch.take):
        backward(of_group, 1.0, fails=True)
        # Whatever lies in that buffer is no gradient.
        buffers[-1].fill_(float("nan"))
        drop()
        backward(of_group, 2.0)
        noted = watch.take()
        assert noted.n == 1 and noted.bad() == []
    backward(of_group, float("inf"))
    assert watch.take().bad() == [("layer", False)]


def test_noted_values_keep_their_memory_until_they_are_read():
    values = [torch.tensor(float(n)) for n in range(3)]
    kept = [weakref.ref(value.untyped_storage()) for value in values]
    noted = Noted([(str(n), value) for n, value in enumerate(values)])
    del values
    gc.collect()
    assert all(reference() is not None for reference in kept)
    assert noted.bad() == []
    gc.collect()
    assert all(reference() is None for reference in kept)


def test_any_bad_is_what_bad_finds():
    for values, bad in [((1.0, 2.0), 0), ((1.0, float("nan")), 1), ((float("-inf"), 2.0), 1)]:
        noted = Noted([("a", torch.tensor(values[0])), ("b", torch.tensor(values[1], dtype=torch.bfloat16))])
        assert noted.any_bad(torch.device("cpu")).tolist() == [bad] == [len(noted.bad())]


def test_a_guard_that_cannot_be_set_up_leaves_no_hook(monkeypatch):
    model = torch.nn.Linear(3, 3)

    def fails(_):
        raise torch.OutOfMemoryError("planted")

    monkeypatch.setattr(_guard.Guard, "_warm_up", fails)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(torch.OutOfMemoryError):
        guard(model, optimizer)
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
