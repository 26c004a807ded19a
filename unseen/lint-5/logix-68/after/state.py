from collections import defaultdict

import torch
import torch.distributed as dist


def nested():
    return defaultdict(nested)


def reduce_nested(values):
    for key in values:
        if isinstance(values[key], dict):
            reduce_nested(values[key])
        else:
            tensor = torch.as_tensor(values[key], device="cuda")
            dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
            values[key] = tensor


class StatisticState:
    def __init__(self):
        self._states = []
        self._to_synchronize = []
        self._to_save = []
        self._to_normalize = []
        self.register("mean_state", synchronize=True, save=True)
        self.register("mean_counter", synchronize=True, save=False)
        self.register("covariance_state", synchronize=True, save=True)
        self.register("covariance_counter", synchronize=True, save=False)

    def register(self, name, synchronize=False, save=False):
        if name in self._states:
            return
        setattr(self, name, nested())
        self._states.append(name)
        if synchronize:
            self._to_synchronize.append(name)
        if save:
            self._to_save.append(name)

    def register_pair(self, name, counter):
        self._to_normalize.append((name, counter))

    def synchronize(self):
        torch.cuda.synchronize()
        if dist.is_initialized() and dist.get_world_size() > 1:
            for name in self._to_synchronize:
                reduce_nested(getattr(self, name))

    def finalize(self):
        self.synchronize()
        for name, counter in self._to_normalize:
            values, counts = getattr(self, name), getattr(self, counter)
            for module in values:
                values[module] = values[module] / counts[module]
