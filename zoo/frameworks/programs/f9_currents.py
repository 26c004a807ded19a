"""Water in a harbour, lattice Boltzmann: rows are split over the processes, the rows at the seams travel with isend and irecv on a stream of their own
while the inside is computed. Forces on the mole are summed in the background in a second group. Started by a shell loop."""
import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

C = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1))
OPPOSITE = (0, 2, 1, 4, 3, 6, 5, 8, 7)
W = (4 / 9,) + (1 / 9,) * 4 + (1 / 36,) * 4


def balance(density, across, along, weights, directions):
    """Populations in equilibrium."""
    c = directions[:, 0, None, None] * across + directions[:, 1, None, None] * along
    return weights[:, None, None] * density * (1 + 3 * c + 4.5 * c * c - 1.5 * (across * across + along * along))


class Harbour:
    def __init__(self, o, rank, world, device):
        self.o, self.rank, self.world, self.device = o, rank, world, device
        self.weights = torch.tensor(W, device=device)
        self.directions = torch.tensor(C, device=device, dtype=torch.float32)
        self.opposite = torch.tensor(OPPOSITE, device=device)
        self.rows = o.rows // world
        y = torch.arange(-1, self.rows + 1, device=device)[:, None] + rank * self.rows
        x = torch.arange(o.columns, device=device)[None]
        self.mole = ((y - o.rows // 2) ** 2 + (x - o.columns // 5) ** 2 < (o.rows // 9) ** 2) | (y < 1) | (y >= o.rows - 1)
        zero = torch.zeros(self.rows + 2, o.columns, device=device)
        self.f = balance(zero + 1, zero, zero + o.speed, self.weights, self.directions)
        self.travel = torch.cuda.Stream() if device.type == "cuda" else None
        self.above, self.below = (rank - 1 if rank else None), (rank + 1 if rank + 1 < world else None)

    def exchange(self):
        """Fills the rows of the neighbours."""
        out, into, calls = {}, {}, []
        for peer, row in ((self.above, 1), (self.below, self.rows)):
            if peer is not None:
                out[peer] = self.f[:, row].contiguous()
                into[peer] = torch.empty_like(out[peer])
                calls += [dist.P2POp(dist.isend, out[peer], peer), dist.P2POp(dist.irecv, into[peer], peer)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        for peer, row in ((self.above, 0), (self.below, self.rows + 1)):
            if peer is not None:
                self.f[:, row] = into[peer]

    def collide(self):
        density = self.f.sum(0)
        across, along = torch.einsum("dc,dyx->cyx", self.directions, self.f) / density
        steady = balance(density, across, along, self.weights, self.directions)
        after = self.f - (self.f - steady) / self.o.tau
        return torch.where(self.mole, self.f[self.opposite], after)

    def step(self):
        self.f = self.collide()
        if self.travel:
            self.travel.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.travel):
                self.exchange()
            torch.cuda.current_stream().wait_stream(self.travel)
        else:
            self.exchange()
        self.f = torch.stack([self.f[i].roll(C[i], (0, 1)) for i in range(9)])
        self.f[:, :, 0] = balance(torch.ones_like(self.f[0, :, :1]), torch.zeros_like(self.f[0, :, :1]), torch.full_like(self.f[0, :, :1], self.o.speed),
                                  self.weights, self.directions)[:, :, 0]
        self.f[:, :, -1] = self.f[:, :, -2]

    def gauge(self):
        """Mass, momentum along the harbour, and the push on the mole."""
        inner = self.f[:, 1:-1]
        along = torch.einsum("d,dyx->yx", self.directions[:, 1], inner)
        return torch.stack([inner.sum(), along.sum(), (along * self.mole[1:-1]).sum()])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--columns", type=int, default=1536)
    p.add_argument("--steps", type=int, default=12000)
    p.add_argument("--speed", type=float, default=0.08)
    p.add_argument("--tau", type=float, default=0.58)
    p.add_argument("--gauge", type=int, default=200)
    p.add_argument("--image", type=int, default=3000)
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args()
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    patience = timedelta(seconds=o.timeout)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=patience)
    gauges = dist.new_group(timeout=patience)
    harbour, pending, began = Harbour(o, rank, world, device), None, time.time()
    print(f"[{rank}] rows {rank * harbour.rows}..{(rank + 1) * harbour.rows - 1} on {device}", flush=True)
    for step in range(1, o.steps + 1):
        harbour.step()
        if step in (1, 10) or step % o.gauge == 0:
            if pending:
                when, values, work = pending
                work.wait()
                mass, flow, push = values.tolist()
                if rank == 0:
                    print(f"[0] {when:6d} mass {mass:.1f} flow {flow:+.3f} push {push:+.4f} after {time.time() - began:.1f} s", flush=True)
            values = harbour.gauge()
            pending = step, values, dist.all_reduce(values, group=gauges, async_op=True)
        if step % o.image == 0:
            small = harbour.f[:, 1:-1:4, ::4].sum(0).contiguous()
            parts = [torch.empty_like(small) for _ in range(world)] if rank == 0 else None
            dist.gather(small, parts, dst=0)
            if rank == 0:
                torch.save(torch.cat(parts).cpu(), f"density-{step}.pt")
    if pending:
        pending[2].wait()
    dist.barrier()
    print(f"[{rank}] {o.steps} steps in {time.time() - began:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
