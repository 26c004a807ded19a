"""Next move of chess games, a decoder with FSDP2; checkpoints are written in the background through a Gloo group, a start goes on from the last one."""
import json
import os
import sys
import time
from dataclasses import dataclass, fields
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

MOVES, PLIES = 1968, 96


@dataclass
class Plan:
    width: int = 512
    depth: int = 6
    heads: int = 8
    games: int = 12
    steps: int = 160
    save_every: int = 40
    show_every: int = 10
    wait: int = 1800
    folder: str = "games"

    @classmethod
    def of(cls, words):
        kinds = {f.name: f.type for f in fields(cls)}
        given = dict(word.lstrip("-").split("=", 1) for word in words)
        return cls(**{k: (str if kinds[k] in (str, "str") else int)(v) for k, v in given.items()})


class Ply(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.heads = plan.heads
        self.before, self.after = nn.RMSNorm(plan.width), nn.RMSNorm(plan.width)
        self.qkv, self.out = nn.Linear(plan.width, 3 * plan.width, bias=False), nn.Linear(plan.width, plan.width, bias=False)
        self.up, self.down = nn.Linear(plan.width, 4 * plan.width, bias=False), nn.Linear(4 * plan.width, plan.width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.after(x))))


class Player(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.move, self.ply = nn.Embedding(MOVES, plan.width), nn.Embedding(PLIES, plan.width)
        self.plies = nn.ModuleList(Ply(plan) for _ in range(plan.depth))
        self.guess = nn.Linear(plan.width, MOVES, bias=False)

    def forward(self, moves):
        x = self.move(moves) + self.ply.weight[: moves.shape[1]]
        for ply in self.plies:
            x = ply(x)
        return self.guess(x)


class Progress(Stateful):
    """All that a checkpoint has."""

    def __init__(self, player, opt):
        self.player, self.opt, self.step = player, opt, 0

    def state_dict(self):
        weights, moments = get_state_dict(self.player, self.opt)
        return {"weights": weights, "moments": moments, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.player, self.opt, model_state_dict=state["weights"], optim_state_dict=state["moments"])
        self.step = state["step"]


def openings(plan, step, rank):
    g = torch.Generator().manual_seed(step * 7 + rank)
    start, stride = torch.randint(0, MOVES, (2, plan.games, 1), generator=g)
    return (start + stride % 40 * torch.arange(PLIES + 1)) % MOVES


class Archive:
    """At most one checkpoint is being written at a time."""

    def __init__(self, plan, group):
        self.plan, self.group, self.pending = plan, group, None

    def settle(self):
        if self.pending:
            step, future = self.pending
            future.result()
            if dist.get_rank() == 0:
                with open(f"{self.plan.folder}/LATEST", "w") as file:
                    file.write(str(step))
            self.pending = None

    def write(self, progress):
        self.settle()
        self.pending = progress.step, dcp.async_save({"all": progress}, checkpoint_id=f"{self.plan.folder}/{progress.step}", process_group=self.group)

    def latest(self):
        try:
            with open(f"{self.plan.folder}/LATEST") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0


@record
def pretrain():
    plan = Plan.of(sys.argv[1:])
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    wait = timedelta(seconds=plan.wait)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=wait, device_id=device if cuda else None)
    paper = dist.new_group(backend="gloo", timeout=wait)
    torch.manual_seed(64)
    player = Player(plan).to(device)
    for ply in player.plies:
        fully_shard(ply)
    fully_shard(player)
    opt = torch.optim.AdamW(player.parameters(), lr=3e-4, foreach=True)
    progress, archive, began = Progress(player, opt), Archive(plan, paper), time.time()
    last = archive.latest()
    if last:
        dcp.load({"all": progress}, checkpoint_id=f"{plan.folder}/{last}")
    if rank == 0:
        print(json.dumps({"from": progress.step, "weights": sum(w.numel() for w in player.parameters())}), flush=True)
    while progress.step < plan.steps:
        progress.step += 1
        moves = openings(plan, progress.step, rank).to(device)
        loss = F.cross_entropy(player(moves[:, :-1]).flatten(0, 1), moves[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(player.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        if progress.step == 1 or progress.step % plan.show_every == 0:
            shown = torch.stack([loss.detach(), norm.full_tensor()])
            dist.all_reduce(shown)
            if rank == 0:
                print(json.dumps({"ply_step": progress.step, "loss": round(shown[0].item() / dist.get_world_size(), 4), "s": round(time.time() - began, 2)}), flush=True)
        if progress.step % plan.save_every == 0:
            archive.write(progress)
    archive.settle()
    dist.barrier()
    if rank == 0:
        print(json.dumps({"end": progress.step}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    pretrain()
