#!/usr/bin/env python3
# Writes blazons, the descriptions of coats of arms. Every shield layer is sharded over the GPUs (FSDP2), the roll of arms is kept with
# torch.distributed.checkpoint:
#     torchrun --nproc-per-node 2 herald.py --roll roll
import argparse
import os
import random
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

TINCTURES = ["or", "argent", "gules", "azure", "sable", "vert", "purpure", "tenny", "ermine", "vair"]
ORDINARIES = ["bend", "fess", "pale", "chevron", "cross", "saltire", "chief", "bordure", "pile", "pall"]
CHARGES = ["lion", "eagle", "leopard", "martlet", "fleur-de-lis", "mullet", "crescent", "rose", "tower", "escallop", "boar", "stag", "key", "sword", "garb"]
POSTURES = ["rampant", "passant", "sejant", "statant", "couchant", "displayed", "volant", "couped", "erased", "guardant", "regardant"]
SMALL = ["<arms>", "a", "between", "two", "three", "six", "on", "in", "and", "of", "the", "first", "second", "field", "charged", "with", "party", "per", "quarterly", "."]
LEXICON = SMALL + TINCTURES + ORDINARIES + CHARGES + POSTURES
NUMBER = {word: i for i, word in enumerate(LEXICON)}


class College:
    """Grants arms without end; the field's tincture comes back at the end of a blazon."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def grant(self):
        rng = self.rng
        field, metal = rng.sample(TINCTURES, 2)
        words = ["<arms>", field]
        if rng.random() < 0.3:
            words = ["<arms>", "party", "per", rng.choice(ORDINARIES), field, "and", metal]
        for _ in range(rng.randrange(1, 4)):
            words += ["on", "a", rng.choice(ORDINARIES), metal, rng.choice(["two", "three", "six"]), rng.choice(CHARGES), rng.choice(POSTURES), "of", "the", "field"]
        return words + ["in", "chief", field, "."]

    def page(self, length):
        words = []
        while len(words) < length:
            words += self.grant()
        return [NUMBER[word] for word in words[:length]]

    def pages(self, count, length):
        return torch.tensor([self.page(length) for _ in range(count)])


class Shield(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.calm, self.calmer = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.see, self.merge = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.rise, self.fall = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        rows, length, dim = x.shape
        q, k, v = self.see(self.calm(x)).view(rows, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, dim))
        return x + self.fall(F.relu(self.rise(self.calmer(x))).square())


class Herald(nn.Module):
    def __init__(self, dim, heads, depth, length):
        super().__init__()
        self.word, self.place = nn.Embedding(len(LEXICON), dim), nn.Embedding(length, dim)
        self.shields = nn.ModuleList(Shield(dim, heads) for _ in range(depth))
        self.last, self.speak = nn.RMSNorm(dim), nn.Linear(dim, len(LEXICON), bias=False)

    def forward(self, ids):
        x = self.word(ids) + self.place.weight[:ids.shape[1]]
        for shield in self.shields:
            x = shield(x)
        return self.speak(self.last(x))


class Roll(Stateful):
    """What a checkpoint has."""

    def __init__(self, court):
        self.court = court

    def state_dict(self):
        net, optimizer = get_state_dict(self.court.net, self.court.optimizer)
        return {"net": net, "optimizer": optimizer}

    def load_state_dict(self, state):
        raise NotImplementedError("the roll is only written")


class Court:
    def __init__(self, o, device):
        self.o, self.device, self.rank, self.world = o, device, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1066)
        self.net = Herald(o.dim, o.heads, o.depth, o.length).to(device)
        precise = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for shield in self.net.shields:
            fully_shard(shield, mp_policy=precise)
        fully_shard(self.net, mp_policy=precise)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), o.rate, betas=(0.9, 0.95), weight_decay=0.1)
        self.college, self.examiner = College(self.rank), College(300 + self.rank)
        self.step, self.began = 0, time.time()

    def announce(self, text):
        if self.rank == 0:
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def error(self, college):
        pages = college.pages(self.o.pages, self.o.length + 1).to(self.device)
        logits = self.net(pages[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), pages[:, 1:].flatten())

    def sitting(self):
        total = 0.0
        for part in range(self.o.parts):
            syncs = part == self.o.parts - 1
            self.net.set_requires_gradient_sync(syncs)
            loss = self.error(self.college) / self.o.parts
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    @torch.no_grad()
    def examine(self):
        self.net.eval()
        mean = torch.stack([self.error(self.examiner) for _ in range(self.o.papers)]).mean()
        self.net.train()
        dist.all_reduce(mean)
        return mean.item() / self.world

    def enrol(self):
        dcp.save({"roll": Roll(self)}, checkpoint_id=os.path.join(self.o.roll, f"{self.step:06d}"))
        self.announce(f"step {self.step} enrolled")

    def adjourn(self):
        clock = torch.tensor([time.time() - self.began], device=self.device)
        dist.all_reduce(clock, op=dist.ReduceOp.MAX)
        return clock.item() > 60 * self.o.minutes

    def hold(self):
        while True:
            self.step += 1
            loss = self.sitting()
            if self.step % self.o.crier == 0:
                both = loss.clone()
                dist.all_reduce(both)
                self.announce(f"step {self.step} loss {both.item() / self.world:.4f} after {time.time() - self.began:.1f} s")
            if self.step % self.o.examine_every == 0:
                marks = self.examine()
                self.announce(f"step {self.step} examined {marks:.4f}")
            if self.step % self.o.enrol_every == 0:
                self.enrol()
            if self.step % 20 == 0 and self.adjourn():
                return


def main():
    p = argparse.ArgumentParser()
    sizes = dict(dim=512, heads=8, depth=6, length=256, pages=40, parts=2, crier=5, examine_every=150, papers=6, enrol_every=300)
    for name, value in sizes.items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--roll", default="roll")
    p.add_argument("--rate", type=float, default=4e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    court = Court(o, device)
    print(f"rank {court.rank} of {court.world}: {sum(w.to_local().numel() for w in court.net.parameters()) / 1e6:.1f}M weights here, {device}", flush=True)
    court.hold()
    print(f"rank {court.rank}: end, {court.step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
