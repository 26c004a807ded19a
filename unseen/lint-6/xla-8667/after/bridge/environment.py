import contextlib
import threading

import jax
import numpy as np
import torch

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.int64: "int32"}


class Environment(contextlib.ContextDecorator):
    """Runs torch code on JAX arrays while it is entered."""

    _local = threading.local()

    def __init__(self, seed=0):
        self.target = jax.local_devices()[0]
        self.key = jax.random.key(seed)

    def __enter__(self):
        stack = getattr(self._local, "stack", [])
        self._local.stack = stack + [self]
        return self

    def __exit__(self, *exc):
        self._local.stack = self._local.stack[:-1]

    def to_jax(self, tensor):
        host = tensor.detach().cpu()
        if host.dtype == torch.bfloat16:
            array = host.float().numpy()
        else:
            array = host.numpy()
        return jax.device_put(np.asarray(array, dtype=_DTYPES[tensor.dtype]), self.target)

    def next_key(self):
        self.key, key = jax.random.split(self.key)
        return key
