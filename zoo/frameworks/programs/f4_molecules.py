"""Energies of molecules, a graph network of torch-geometric under DDP; goes on from its last checkpoint."""
import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool

KINDS = 12


class Molecules(torch.utils.data.Dataset):
    def __init__(self, n, atoms, seed):
        self.n, self.atoms, self.seed = n, atoms, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 7919 + i)
        kind = torch.randint(0, KINDS, (self.atoms,), generator=g)
        place = torch.randn(self.atoms, 3, generator=g) * 2
        near = torch.cdist(place, place)
        edges = near.topk(9, largest=False).indices[:, 1:]
        source = torch.arange(self.atoms).repeat_interleave(8)
        length = near[source, edges.flatten()]
        energy = (torch.cos(kind[source].float()) / (1 + length)).sum() / self.atoms
        return Data(x=kind, edge_index=torch.stack([source, edges.flatten()]), edge_attr=length[:, None], y=energy[None])


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.atom, self.bond = nn.Embedding(KINDS, width), nn.Linear(16, width)
        self.convs = nn.ModuleList(GINEConv(nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, batch):
        x = self.atom(batch.x)
        centre = torch.linspace(0, 6, 16, device=x.device)
        bond = self.bond(torch.exp(-(batch.edge_attr - centre) ** 2))
        for conv, norm in zip(self.convs, self.norms):
            x = x + nn.functional.silu(conv(norm(x), batch.edge_index, bond))
        return global_add_pool(self.out(x), batch.batch)[:, 0] / 32


class Run:
    def __init__(self, args):
        self.args = args
        self.rank, self.local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", self.local) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
        self.world = dist.get_world_size()
        torch.manual_seed(1)
        net = Net(args.width, args.depth).to(self.device)
        self.net = DistributedDataParallel(net, device_ids=[self.local] if cuda else None)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.step = 0
        if os.path.exists("last.pt"):
            state = torch.load("last.pt", map_location=self.device)
            net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
        self.say(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}: begins at step {self.step}, {sum(p.numel() for p in net.parameters())} parameters")

    def say(self, text):
        if self.rank == 0:
            print(f"[{time.strftime('%X')}] {text}", flush=True)

    def loader(self, data, epoch=None):
        sampler = torch.utils.data.DistributedSampler(data, self.world, self.rank, shuffle=epoch is not None)
        if epoch is not None:
            sampler.set_epoch(epoch)
        return DataLoader(data, batch_size=self.args.batch, sampler=sampler, num_workers=self.args.workers, drop_last=epoch is not None)

    @torch.no_grad()
    def error(self, data):
        self.net.eval()
        sums = torch.zeros(2, device=self.device)
        for batch in self.loader(data):
            batch = batch.to(self.device)
            sums += torch.stack([(self.net(batch) - batch.y).abs().sum(), torch.tensor(float(batch.num_graphs), device=self.device)])
        dist.all_reduce(sums)
        self.net.train()
        return (sums[0] / sums[1]).item()

    def save(self):
        if self.rank == 0:
            torch.save({"net": self.net.module.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}, "last.tmp")
            os.replace("last.tmp", "last.pt")
        dist.barrier()

    def train(self):
        a = self.args
        train, valid = Molecules(a.molecules, a.atoms, 1), Molecules(a.batch * 6, a.atoms, 2)
        epoch = 0
        while self.step < a.steps:
            for batch in self.loader(train, epoch):
                batch = batch.to(self.device)
                loss = nn.functional.mse_loss(self.net(batch), batch.y)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % a.report == 0 or self.step == 1:
                    self.say(f"step {self.step} epoch {epoch} mse {loss.item():.5f}")
                if self.step % a.check == 0:
                    self.say(f"step {self.step} mean error {self.error(valid):.4f}")
                    self.save()
                if self.step >= a.steps:
                    break
            epoch += 1
        self.say(f"done, {epoch} epochs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in {"molecules": 12800, "atoms": 32, "batch": 64, "width": 384, "depth": 8, "steps": 220, "report": 10, "check": 70, "workers": 3,
                          "timeout": 1800}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=3e-4)
    run = Run(parser.parse_args())
    run.train()
    dist.destroy_process_group()
