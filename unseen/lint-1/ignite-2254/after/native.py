import os

import torch
import torch.distributed as dist


class NativeDist:
    """Process group of torchrun-launched jobs."""

    def __init__(self, backend="nccl", timeout=None, init_method="env://"):
        self.backend = backend
        self.local_rank = int(os.environ["LOCAL_RANK"])
        kwargs = {} if timeout is None else {"timeout": timeout}
        kwargs["world_size"] = int(os.environ["WORLD_SIZE"])
        kwargs["rank"] = int(os.environ["RANK"])
        dist.init_process_group(backend, init_method=init_method, **kwargs)

        if torch.cuda.is_available():
            torch.cuda.set_device(self.local_rank)

        # let everybody arrive
        device_ids = [self.local_rank] if backend == "nccl" else None
        dist.barrier(device_ids=device_ids)

        self._setup_attrs()

    def _setup_attrs(self):
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        counts = [None] * self.world_size
        dist.all_gather_object(counts, (os.uname().nodename, self.local_rank))
        self.nnodes = len({c[0] for c in counts})

    def device(self):
        return torch.device("cuda", torch.cuda.current_device())

    def finalize(self):
        dist.destroy_process_group()


def main():
    ctx = NativeDist()
    x = torch.ones(4, device=ctx.device()) * ctx.rank
    dist.all_reduce(x)
    print(ctx.rank, x.tolist())
    ctx.finalize()


if __name__ == "__main__":
    main()
