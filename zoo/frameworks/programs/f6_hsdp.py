"""Hybrid sharding: the weights are sharded inside a pair of ranks and replicated over the pairs; an MLP mixer that fills gaps in
sensor readings, with distributed checkpoints."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

TIMES, SENSORS = 96, 64


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.times = nn.Sequential(nn.Linear(TIMES, 2 * TIMES), nn.GELU(), nn.Linear(2 * TIMES, TIMES))
        self.channels = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.times(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Gaps(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.enter = nn.Linear(2 * SENSORS, width)
        self.mixers = nn.ModuleList(Mixer(width) for _ in range(depth))
        self.leave = nn.Linear(width, SENSORS)

    def forward(self, readings, known):
        x = self.enter(torch.cat([readings * known, known], -1))
        for mixer in self.mixers:
            x = mixer(x)
        return ((self.leave(x) - readings) ** 2 * (1 - known)).sum() / (1 - known).sum()


class Stations(torch.utils.data.Dataset):
    """The stations of one rank: every world-th one."""

    def __init__(self, count, rank, world):
        self.ids = list(range(rank, count, world))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.ids[i])
        base = torch.sin(torch.arange(TIMES)[:, None] * (0.05 + torch.rand(1, SENSORS, generator=g)) + torch.rand(1, SENSORS, generator=g) * 6)
        return base + 0.05 * torch.randn(TIMES, SENSORS, generator=g), (torch.rand(TIMES, SENSORS, generator=g) > 0.3).float()


class Running:
    """Running moments of all readings, averaged over the replicas at each report."""

    def __init__(self, device):
        self.table = torch.zeros(2048, TIMES * 8, device=device)
        self.seen = 0

    def add(self, readings):
        self.seen += 1
        self.table[self.seen % 2048] += readings[:, :, :8].mean(0).flatten()

    def reduce(self, group):
        total = self.table.clone()
        dist.all_reduce(total, group=group)
        return float(total.abs().sum()) / max(1, self.seen)


def evaluate(model, device, batches):
    model.eval()
    total = torch.zeros((), device=device)
    held = Stations(100000, 99000, 7)
    with torch.no_grad():
        for n in range(batches):
            readings, known = (torch.stack(x).to(device) for x in zip(*(held[n * 4 + i] for i in range(4))))
            total += model(readings, known)
    model.train()
    return total / batches


def save(model, opt, folder, step, pause):
    began = time.time()
    weights, moments = get_state_dict(model, opt)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=os.path.join(folder, str(step)))
    time.sleep(pause)  # the archive of the institute takes its time
    return time.time() - began


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--stations", type=int, default=2560)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--report", type=int, default=10)
    p.add_argument("--evaluate", type=int, default=80)
    p.add_argument("--save", type=int, default=100)
    p.add_argument("--save-pause", type=float, default=0)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    wait = timedelta(seconds=args.timeout)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=wait)
    grid = torch.arange(world).view(-1, 2)
    shard, _ = dist.new_subgroups_by_enumeration(grid.tolist(), timeout=wait)
    replicate, _ = dist.new_subgroups_by_enumeration(grid.T.tolist(), timeout=wait)
    mesh = DeviceMesh.from_group([replicate, shard], device.type, mesh=grid, mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(8)
    model = Gaps(args.width, args.depth).to(device)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if cuda else MixedPrecisionPolicy()
    for mixer in model.mixers:
        fully_shard(mixer, mesh=mesh, mp_policy=half)
    fully_shard(model, mesh=mesh, mp_policy=half)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4)
    data = Stations(args.stations, rank, world)
    loader = torch.utils.data.DataLoader(data, args.batch, num_workers=args.workers, drop_last=True, persistent_workers=args.workers > 0)
    moments, step, began = Running(device), 0, time.time()
    if rank == 0:
        print(f"mesh {mesh.mesh.tolist()}, {sum(w.numel() for w in model.parameters()) / 1e6:.1f} M parameters, {len(loader)} batches an epoch", flush=True)
    for epoch in range(args.epochs):
        for readings, known in loader:
            step += 1
            readings, known = readings.to(device, non_blocking=True), known.to(device, non_blocking=True)
            loss = model(readings, known)
            loss.backward()
            opt.step()
            opt.zero_grad()
            moments.add(readings)
            if step == 1 or step % args.report == 0:
                shown = loss.detach().clone()
                dist.all_reduce(shown)
                level = moments.reduce(replicate)
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {shown.item() / world:.4f} level {level:.1f} [{time.time() - began:.1f} s]", flush=True)
            if step % args.evaluate == 0:
                score = evaluate(model, device, 8)
                if rank == 0:
                    print(f"epoch {epoch} step {step} held-out loss {score.item():.4f}", flush=True)
            if step % args.save == 0:
                seconds = save(model, opt, "archive", step, args.save_pause)
                if rank == 0:
                    print(f"epoch {epoch} step {step} saved in {seconds:.1f} s", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"finished after {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
