import torch
import torch.distributed as dist
import xarray as xr


class Distributed:
    _instance = None

    def __init__(self):
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    @classmethod
    def get_instance(cls):
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def is_root(self):
        return self.rank == 0

    def reduce_mean(self, tensor):
        if dist.is_initialized():
            dist.all_reduce(tensor)
            tensor /= dist.get_world_size()
        return tensor


class Aggregator:
    def __init__(self):
        self.dist = Distributed.get_instance()
        self.sums, self.n = {}, 0

    def record(self, fields):
        for name in sorted(fields):
            self.sums[name] = self.sums.get(name, 0) + fields[name].mean(0)
        self.n += 1

    def get_dataset(self):
        data = {k: self.dist.reduce_mean(v / self.n).cpu().numpy() for k, v in sorted(self.sums.items())}
        return xr.Dataset({k: (("lat", "lon"), v) for k, v in data.items()})


class Evaluator:
    def __init__(self, model, loader, aggregator, path):
        self.model, self.loader, self.aggregator, self.path = model, loader, aggregator, path
        self.dist = Distributed.get_instance()

    @torch.no_grad()
    def run(self):
        for fields in self.loader:
            self.aggregator.record(self.model(fields))
        ds = self.aggregator.get_dataset()
        if self.dist.is_root():
            ds.to_netcdf(self.path)
