"""Serves stories: tensor-parallel decoding over all ranks. Rank 0 takes requests from a queue and sends each to the others; every rank samples the
same token with a generator that has the seed of the request."""
import argparse
import logging
import os
import queue
import random
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, ENDS = 512, 24
log = logging.getLogger("quests")


class SharedAttention(nn.Module):
    """Each rank has some of the heads."""

    def __init__(self, width, heads, world):
        super().__init__()
        self.heads, part = heads // world, width // world
        self.qkv, self.out = nn.Linear(width, 3 * part, bias=False), nn.Linear(part, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        dist.all_reduce(y)
        return y


class SharedMLP(nn.Module):
    def __init__(self, width, world):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width // world, bias=False), nn.Linear(4 * width // world, width, bias=False)

    def forward(self, x):
        y = self.down(F.gelu(self.up(x)))
        dist.all_reduce(y)
        return y


class Narrator(nn.Module):
    def __init__(self, width, depth, world):
        super().__init__()
        self.world = world
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(256, width)
        self.attention = nn.ModuleList(SharedAttention(width, 8, world) for _ in range(depth))
        self.mlp = nn.ModuleList(SharedMLP(width, world) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.head = nn.Linear(width, VOCABULARY // world, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.place.weight[: ids.shape[1]]
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp)):
            x = x + attention(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        mine = self.head(self.norms[-1](x[:, -1])).contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine)
        return torch.cat(parts, -1)


@torch.inference_mode()
def tell(model, request, o, device):
    """Tokens until one that ends the story."""
    generator = torch.Generator(device).manual_seed(request["seed"])
    ids = torch.tensor([request["prompt"]], device=device)
    for count in range(1, o.tokens + 1):
        chances = (model(ids).float() / request["temperature"]).softmax(-1)
        token = torch.multinomial(chances, 1, generator=generator)
        ids = torch.cat([ids, token], 1)
        if token.item() < ENDS:
            break
    return ids[0, len(request["prompt"]):].tolist()


class Intake(threading.Thread):
    """Stands for the HTTP front end: puts requests into the queue."""

    def __init__(self, o):
        super().__init__(name="intake", daemon=True)
        self.o, self.requests = o, queue.Queue(maxsize=8)

    def run(self):
        rng = random.Random(5)
        for number in range(1, self.o.requests + 1):
            if number == self.o.gap_after:
                time.sleep(self.o.gap)
            time.sleep(rng.uniform(0, 0.05))
            prompt = [rng.randrange(ENDS, VOCABULARY) for _ in range(rng.randrange(4, 24))]
            self.requests.put({"op": "tell", "number": number, "prompt": prompt, "seed": rng.randrange(1 << 30), "temperature": rng.choice((0.8, 1.0))})
        self.requests.put({"op": "stop"})


def announce(message, device):
    """The message of rank 0 on all ranks."""
    box = [message]
    dist.broadcast_object_list(box, src=0, device=device)
    return box[0]


def serve(o):
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.timeout))
    torch.manual_seed(100 + rank)
    model = Narrator(o.width, o.depth, world).to(device).eval()
    for shared in (model.token, model.place, *model.norms):
        for weight in shared.parameters():
            dist.broadcast(weight.data, src=0)
    intake = Intake(o)
    if rank == 0:
        intake.start()
        log.info("serving on %d ranks, %s", world, device.type)
    served, busy = 0, 0.0
    while True:
        message = None
        if rank == 0:
            try:
                message = intake.requests.get(timeout=o.ping)
            except queue.Empty:
                message = {"op": "ping"}
        message = announce(message, device)
        if message["op"] == "stop":
            break
        if message["op"] == "ping":
            continue
        began = time.time()
        story = tell(model, message, o, device)
        served, busy = served + 1, busy + time.time() - began
        if rank == 0 and (served <= 5 or served % o.report == 0):
            log.info("request %d: %d tokens, ends with %d, %.3f s each", message["number"], len(story), story[-1], busy / served)
    dist.barrier()
    if rank == 0:
        log.info("served %d requests, closing", served)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=150)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--ping", type=float, default=10)
    p.add_argument("--gap-after", type=int, default=0)
    p.add_argument("--gap", type=float, default=40)
    p.add_argument("--report", type=int, default=10)
    p.add_argument("--timeout", type=int, default=1800)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:     %(asctime)s %(message)s")
    serve(p.parse_args())
