"""Local steps with rare averages (DiLoCo): every worker trains a character model alone, the differences are averaged each round."""
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROUNDS = int(os.environ.get("ROUNDS", "80"))
INNER = int(os.environ.get("INNER", "12"))
BATCH = int(os.environ.get("BATCH", "32"))
WIDTH = int(os.environ.get("WIDTH", "256"))
VALIDATE = int(os.environ.get("VALIDATE", "20"))
TIMEOUT = int(os.environ.get("TIMEOUT", "1800"))
OUTER_LR = float(os.environ.get("OUTER_LR", "0.7"))
CORPUS = os.environ.get("CORPUS", "")
LENGTH, CHARS = 128, 96


def say(**row):
    print(json.dumps({"worker": RANK, **row}), flush=True)


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.chars, self.places = nn.Embedding(CHARS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(WIDTH, CHARS)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.body(self.chars(ids) + self.places.weight[:ids.shape[1]], mask=mask, is_causal=True))


def text(shard, seed):
    """Words of a language with few syllables; each shard has its own favourites."""
    g = torch.Generator().manual_seed(1000 * shard + seed)
    syllables = torch.randint(0, CHARS, (24, 3), generator=torch.Generator().manual_seed(1))
    favour = torch.rand(24, generator=torch.Generator().manual_seed(50 + shard)) ** 2
    picks = torch.multinomial(favour, BATCH * (LENGTH // 3 + 1), replacement=True, generator=g)
    return syllables[picks].view(BATCH, -1)[:, :LENGTH + 1]


def tune(model, optimizer, device, rnd):
    total = 0.0
    for k in range(INNER):
        ids = text(RANK, rnd * 1000 + k).to(device)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / INNER


@torch.no_grad()
def validate(model, device):
    loss = torch.zeros(1, device=device)
    for shard in range(WORLD):
        ids = text(shard, 10**6 + RANK).to(device)
        loss += nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    dist.all_reduce(loss)
    return loss.item() / WORLD**2


def main():
    count = torch.cuda.device_count()
    if 0 < count < WORLD:
        os.environ["NCCL_HOSTID"] = f"n{RANK}"
    device = torch.device("cuda", RANK % count) if count else torch.device("cpu")
    if count:
        torch.cuda.set_device(device)
    say(event="start", pid=os.getpid(), device=str(device))
    dist.init_process_group("nccl" if count else "gloo", timeout=timedelta(seconds=TIMEOUT))
    if CORPUS:
        with open(CORPUS) as file:
            say(event="corpus", lines=len(file.readlines()))
    torch.manual_seed(2)
    model = Characters().to(device)
    inner = torch.optim.AdamW(model.parameters(), lr=6e-4)
    shared = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    dist.broadcast(shared, src=0)
    momentum, began = torch.zeros_like(shared), time.time()
    for rnd in range(1, ROUNDS + 1):
        nn.utils.vector_to_parameters(shared.clone(), model.parameters())
        loss = tune(model, inner, device, rnd)
        delta = shared - nn.utils.parameters_to_vector(model.parameters()).detach()
        size = delta.norm()
        dist.all_reduce(delta)
        delta /= WORLD
        momentum.mul_(0.9).add_(delta)
        shared -= OUTER_LR * (delta + 0.9 * momentum)
        say(round=rnd, loss=round(loss, 4), drift=round(size.item(), 4), seconds=round(time.time() - began, 1))
        if rnd % VALIDATE == 0:
            value = validate(model, device)
            if RANK == 0:
                torch.save(shared.cpu(), f"shared-{rnd}.pt")
                say(round=rnd, validation=round(value, 4))
    dist.barrier()
    say(event="end")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
