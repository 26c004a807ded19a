import argparse
import glob
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.b(nn.functional.silu(self.a(self.norm(x))))


class Surrogate(nn.Module):
    """Maps simulation parameters to fields."""

    def __init__(self, params=64, width=768, depth=6, fields=256):
        super().__init__()
        self.stem = nn.Linear(params, width)
        self.trunk = nn.Sequential(*[Residual(width) for _ in range(depth)])
        self.head = nn.Linear(width, fields)

    def forward(self, x):
        return self.head(self.trunk(self.stem(x)))


class TrainState(Stateful):
    def __init__(self, model, optim):
        self.model, self.optim, self.step = model, optim, 0

    def state_dict(self):
        model, optim = get_state_dict(self.model, self.optim)
        return {"model": model, "optim": optim, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optim, model_state_dict=state["model"], optim_state_dict=state["optim"])
        self.step = state["step"]


def simulate(step, rank, batch):
    g = torch.Generator().manual_seed(step * 64 + rank)
    x = torch.rand(batch, 64, generator=g)
    return x, torch.cos(3 * x).repeat(1, 4)


def newest(folder):
    done = [p for p in glob.glob(f"{folder}/*") if os.path.exists(p + "/.metadata")]
    return max(done, key=lambda p: int(p.rsplit("-", 1)[1])) if done else None


def main(a):
    cuda = torch.cuda.is_available()
    rank = int(os.environ["RANK"])
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if cuda else "cpu"
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=a.pg_timeout))
    writers = dist.new_group(backend="gloo", timeout=timedelta(seconds=a.pg_timeout))
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(2)
    model = Surrogate().to(device)
    for block in model.trunk:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = TrainState(model, torch.optim.Adam(model.parameters(), lr=2e-4))
    last = newest(a.dir)
    if last:
        dcp.load({"app": state}, checkpoint_id=last)
    if rank == 0:
        print(f"starting from {last or 'scratch'} at step {state.step}", flush=True)
    pending = None
    while state.step < a.steps:
        state.step += 1
        x, y = simulate(state.step, rank, a.batch)
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        state.optim.step()
        state.optim.zero_grad()
        if state.step % 20 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"{state.step:5d}  mse {mean.item() / dist.get_world_size():.5f}", flush=True)
        if state.step % a.every == 0:
            if pending is not None:
                pending.result()
            pending = dcp.async_save({"app": state}, checkpoint_id=f"{a.dir}/step-{state.step}", process_group=writers)
            if rank == 0:
                print(f"{state.step:5d}  checkpoint in the background", flush=True)
    if pending is not None:
        pending.result()
    if rank == 0:
        print("complete", sorted(os.listdir(a.dir)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--batch", type=int, default=64)
    cli.add_argument("--every", type=int, default=80)
    cli.add_argument("--dir", default="dcp")
    cli.add_argument("--pg-timeout", type=int, default=1800)
    main(cli.parse_args())
