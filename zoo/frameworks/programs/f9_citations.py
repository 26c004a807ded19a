"""Fields of papers from the papers that they cite: GraphSAGE over sampled neighbourhoods, PyTorch Geometric layers under DistributedDataParallel.
A plain script for accelerate launch or torchrun. Process 0 makes the graph once, the others wait for the file."""
import argparse
import logging
import os
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler
from torch_geometric.nn import SAGEConv

FIELDS, FEATURES, CITES = 24, 96, 16
log = logging.getLogger("citations")


def make_graph(papers, path):
    """Most papers cite papers of their own field."""
    rng = np.random.default_rng(17)
    field = rng.integers(0, FIELDS, papers)
    order, start = np.argsort(field, kind="stable"), np.searchsorted(np.sort(field), np.arange(FIELDS + 1))
    cited = np.empty((papers, CITES), np.int64)
    for column in range(CITES):
        own = order[start[field] + (rng.random(papers) * (start[field + 1] - start[field])).astype(np.int64)]
        cited[:, column] = np.where(rng.random(papers) < 0.7, own, rng.integers(0, papers, papers))
    centre = rng.normal(size=(FIELDS, FEATURES))
    words = (centre[field] * 0.35 + rng.normal(size=(papers, FEATURES))).astype(np.float32)
    np.savez(path + ".part.npz", field=field, cited=cited, words=words)
    os.replace(path + ".part.npz", path)


class Library:
    def __init__(self, path):
        with np.load(path) as file:
            self.field, self.cited, self.words = (torch.from_numpy(file[k]) for k in ("field", "cited", "words"))

    def neighbours(self, papers, count):
        """Edges from cited papers to `papers`, in the numbers of the returned list of papers."""
        pick = torch.randint(0, CITES, (len(papers), count))
        source = self.cited[papers].gather(1, pick).flatten()
        target = torch.arange(len(papers)).repeat_interleave(count)
        everyone, place = torch.unique(torch.cat([papers, source]), return_inverse=True)
        mine = torch.full((len(everyone),), -1)
        mine[place[: len(papers)]] = torch.arange(len(papers))
        rest = (mine < 0).nonzero()[:, 0]
        mine[rest] = torch.arange(len(papers), len(papers) + len(rest))
        ids = torch.empty_like(everyone)
        ids[mine] = everyone
        return ids, torch.stack([mine[place[len(papers):]], target])


class Sampled:
    """Collates papers to a batch: two hops of sampled citations."""

    def __init__(self, library, rank, fan=(10, 8)):
        self.library, self.rank, self.fan = library, rank, fan

    def __call__(self, papers):
        papers = torch.as_tensor(papers)
        ids, hops = papers, []
        for count in self.fan:
            size = len(ids)
            ids, edges = self.library.neighbours(ids, count)
            hops.insert(0, (edges, size))
        return self.library.words[ids], hops, self.library.field[papers]


class Part(Sampler):
    """The papers of one process. With `by_year` each process has its own years, and not all years have as many papers."""

    def __init__(self, papers, rank, world, by_year):
        self.papers, self.rank, self.world, self.by_year, self.epoch = papers, rank, world, by_year, 0

    def __iter__(self):
        if self.by_year:
            cut = np.cumsum([0, 3, *[2] * (self.world - 1)]) * len(self.papers) // (1 + 2 * self.world)
            own = self.papers[cut[self.rank]: cut[self.rank + 1]]
            own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(self.epoch))]
        else:
            own = self.papers[torch.randperm(len(self.papers), generator=torch.Generator().manual_seed(self.epoch))]
            own = own[self.rank: len(own) // self.world * self.world: self.world]
        self.epoch += 1
        return iter(own.tolist())

    def __len__(self):
        return sum(1 for _ in self.papers[self.rank:: self.world])


class Sage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.out = SAGEConv(FEATURES, width), SAGEConv(width, width), nn.Linear(width, FIELDS)

    def forward(self, x, hops):
        for layer, (edges, size) in zip((self.first, self.second), hops):
            x = F.dropout(layer((x, x[:size]), edges).relu(), 0.3, self.training)
        return self.out(x)


def to(batch, device):
    words, hops, field = batch
    return words.to(device), [(edges.to(device), size) for edges, size in hops], field.to(device)


@torch.no_grad()
def accuracy(net, loader, device):
    net.eval()
    right = torch.zeros(2, device=device)
    for batch in loader:
        words, hops, field = to(batch, device)
        right += torch.stack([(net(words, hops).argmax(1) == field).sum(), torch.tensor(len(field), device=device)])
    net.train()
    dist.all_reduce(right)
    return (right[0] / right[1]).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--papers", type=int, default=80000)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--by-year", action="store_true")
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    rank, local, world = (int(os.environ[k]) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(levelname)s %(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    torch.manual_seed(5 + rank)
    log.info("process %d of %d is there", rank, world)
    if rank == 0:
        make_graph(o.papers, "graph.npz")
    dist.barrier()
    library = Library("graph.npz")
    split = torch.randperm(o.papers, generator=torch.Generator().manual_seed(1))
    known, unseen = split[: o.papers * 9 // 10], split[o.papers * 9 // 10:]
    collate = Sampled(library, rank)
    train = DataLoader(range(o.papers), o.batch, sampler=Part(known, rank, world, o.by_year), collate_fn=collate, num_workers=o.workers, drop_last=True)
    test = DataLoader(range(o.papers), o.batch, sampler=Part(unseen, rank, world, False), collate_fn=collate, num_workers=o.workers)
    net = DDP(Sage(o.width).to(device), device_ids=[local] if cuda else None)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    log.info("%d papers, %s", o.papers, device.type)
    os.makedirs("models", exist_ok=True)
    began = time.time()
    for epoch in range(o.epochs):
        with net.join(enable=o.by_year):
            for number, batch in enumerate(train):
                words, hops, field = to(batch, device)
                loss = F.cross_entropy(net(words, hops), field)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if number % o.every == 0 and rank == 0:
                    log.info("epoch %d batch %d loss %.4f, %.1f s", epoch, number, loss.item(), time.time() - began)
        part = accuracy(net.module, test, device)
        if rank == 0:
            log.info("epoch %d right %.4f", epoch, part)
            torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict()}, f"models/sage-{epoch}.pt")
        dist.barrier()
    log.info("finished after %.1f s", time.time() - began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
