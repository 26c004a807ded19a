import argparse
import contextlib
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ClickLog(IterableDataset):
    def __init__(self, rank, days, rows_per_day):
        self.rank, self.days, self.rows = rank, days, rows_per_day

    def parse(self, day, row):
        g = torch.Generator().manual_seed((day * 977 + row) * 2 + self.rank)
        fields = torch.randint(0, 5000, (26,), generator=g)
        dense = torch.rand(13, generator=g)
        return fields, dense, (fields[0] % 2).float()

    def __iter__(self):
        info = get_worker_info()
        mine = range(info.id, self.rows, info.num_workers) if info else range(self.rows)
        for day in range(self.days):
            for row in mine:
                yield self.parse(day, row)


class WideAndDeep(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.tables = nn.Embedding(26 * 5000, dim)
        self.wide = nn.Embedding(26 * 5000, 1)
        self.deep = nn.Sequential(nn.Linear(26 * dim + 13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("offset", torch.arange(26) * 5000, persistent=False)

    def forward(self, fields, dense):
        index = fields + self.offset
        deep = self.deep(torch.cat([self.tables(index).flatten(1), dense], 1))
        return (deep + self.wide(index).sum(1)).squeeze(1)


class Meter:
    def __init__(self):
        self.data, self.compute, self.n = 0.0, 0.0, 0

    @contextlib.contextmanager
    def watch(self, what):
        began = time.perf_counter()
        yield
        setattr(self, what, getattr(self, what) + time.perf_counter() - began)

    def line(self):
        text = f"data {self.data / self.n * 1e3:.1f} ms/it, step {self.compute / self.n * 1e3:.1f} ms/it"
        self.__init__()
        return text


def auc_like(scores, labels):
    both = torch.stack([scores[labels > 0.5].mean(), scores[labels < 0.5].mean()])
    dist.all_reduce(both)
    return (both[0] - both[1]).item() / dist.get_world_size()


@record
def main():
    p = argparse.ArgumentParser()
    p.add_argument("--days", type=int, default=2)
    p.add_argument("--rows", type=int, default=12800)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--loaders", type=int, default=2)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--amp", action="store_true")
    p.add_argument("--snapshot", default="snapshot.pt")
    p.add_argument("--comm-timeout", type=int, default=1800)
    o = p.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{local}" if gpu else "cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(seconds=o.comm_timeout))
    torch.manual_seed(0)
    net = DistributedDataParallel(WideAndDeep().to(device), device_ids=[local] if gpu else None)
    optim = torch.optim.Adagrad(net.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler(device.type, enabled=o.amp and gpu)
    at = 0
    if os.path.exists(o.snapshot):
        saved = torch.load(o.snapshot, map_location=device)
        net.module.load_state_dict(saved["net"])
        at = saved["it"]
    print(f"[{rank}] attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}, iteration {at}, pid {os.getpid()}", flush=True)
    forward = torch.compile(net, dynamic=False) if o.compile else net
    loader = DataLoader(ClickLog(rank, o.days, o.rows), o.batch, num_workers=o.loaders)
    stream, meter, it = iter(loader), Meter(), at
    while True:
        with meter.watch("data"):
            batch = next(stream, None)
        if batch is None:
            break
        it += 1
        meter.n += 1
        with meter.watch("compute"):
            fields, dense, label = (part.to(device, non_blocking=True) for part in batch)
            with torch.autocast(device.type, dtype=torch.float16, enabled=o.amp and gpu):
                score = forward(fields, dense)
            loss = nn.functional.binary_cross_entropy_with_logits(score.float(), label)
            optim.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optim)
            scaler.update()
            value = loss.item()
        if it % 50 == 0:
            print(f"[{rank}] it {it} loss {value:.4f} ({meter.line()})", flush=True)
        if it % 100 == 0:
            gap = auc_like(score.detach().float(), label)
            if rank == 0:
                torch.save({"net": net.module.state_dict(), "it": it}, o.snapshot + ".part")
                os.replace(o.snapshot + ".part", o.snapshot)
                print(f"[{rank}] it {it} gap {gap:.4f}, snapshot written", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"[{rank}] {it} iterations, stream is empty", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
