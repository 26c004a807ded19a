"""Tensor-parallel completion of code, continuous batching: every finished slot takes the next request."""
import argparse
import os
import time
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

VOCAB, LONGEST = 6000, 160
STOPS = set(range(1, VOCAB, 60))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.d = width // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, cache, at, mask):
        q, k, v = (w(x).unflatten(-1, (-1, self.d)) for w in (self.wq, self.wk, self.wv))
        rows = torch.arange(len(x), device=x.device)
        cache[0][rows, at], cache[1][rows, at] = k, v
        y = nn.functional.scaled_dot_product_attention(q[:, :, None], cache[0].transpose(1, 2), cache[1].transpose(1, 2), attn_mask=mask)
        return self.wo(y.flatten(1))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.att = Attention(width, heads)
        self.gate, self.up, self.down = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False), nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cache, at, mask):
        x = x + self.att(self.n1(x), cache, at, mask)
        h = self.n2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Coder(nn.Module):
    def __init__(self, width, heads, depth):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, width), nn.Embedding(LONGEST, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens, at, caches):
        x = self.words(tokens) + self.places(at)
        mask = (torch.arange(LONGEST, device=at.device)[None] <= at[:, None])[:, None, None]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, at, mask)
        return self.head(self.norm(x))


def shard(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {"att.wq": ColwiseParallel(), "att.wk": ColwiseParallel(), "att.wv": ColwiseParallel(), "att.wo": RowwiseParallel(),
                                         "gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    return parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


class Inbox:
    """Requests of the clients, on rank 0 only."""

    def __init__(self, n, pause):
        self.waiting, self.pause, self.taken = deque(range(n)), pause, 0

    def take(self, most):
        requests = []
        while self.waiting and len(requests) < most:
            number = self.waiting.popleft()
            g = torch.Generator().manual_seed(number)
            length = int(torch.randint(8, 40, (), generator=g))
            requests.append({"id": number, "prompt": torch.randint(2, VOCAB, (length,), generator=g).tolist(), "most": 24 + number % 5 * 12})
        self.taken += len(requests)
        if requests:
            time.sleep(self.pause)
        return requests


class Slot:
    def __init__(self, request):
        self.request, self.feed, self.at, self.out, self.since = request, deque(request["prompt"]), 0, [], time.time()

    def next_token(self):
        return self.feed.popleft() if self.feed else self.out[-1]


class Server:
    def __init__(self, args, rank, device, mesh):
        self.args, self.rank, self.device = args, rank, device
        torch.manual_seed(args.seed)
        model = Coder(args.width, args.heads, args.depth).to(device)
        self.model = shard(model, mesh).eval()
        shape = (args.slots, LONGEST, args.heads // mesh.size(), args.width // args.heads)
        self.caches = [(torch.zeros(shape, device=device), torch.zeros(shape, device=device)) for _ in range(args.depth)]
        self.slots = [None] * args.slots
        self.inbox = Inbox(args.requests, args.pause) if rank == 0 else None
        self.draws = torch.Generator(device=device).manual_seed(args.seed)
        self.steps = self.finished = self.tokens = 0

    def admit(self):
        free = [i for i, slot in enumerate(self.slots) if slot is None]
        if not free:
            return
        box = [None]
        if self.rank == 0:
            box = [self.inbox.take(len(free))]
        dist.broadcast_object_list(box, src=0, device=self.device)
        for i, request in zip(free, box[0]):
            self.slots[i] = Slot(request)

    def sample(self, logits):
        p = torch.softmax(logits.float() / self.args.temperature, -1)
        top, ids = p.topk(self.args.top_k, dim=-1)
        pick = torch.multinomial(top, 1, generator=self.draws)
        return ids.gather(1, pick)[:, 0].tolist()

    @torch.inference_mode()
    def step(self):
        tokens = torch.tensor([slot.next_token() if slot else 0 for slot in self.slots], device=self.device)
        at = torch.tensor([slot.at if slot else 0 for slot in self.slots], device=self.device)
        picked = self.sample(self.model(tokens, at, self.caches))
        for i, slot in enumerate(self.slots):
            if slot is None:
                continue
            slot.at += 1
            if slot.feed:
                continue
            slot.out.append(picked[i])
            self.tokens += 1
            if picked[i] in STOPS or len(slot.out) >= slot.request["most"]:
                self.reply(slot)
                self.slots[i] = None
        self.steps += 1

    def reply(self, slot):
        self.finished += 1
        if self.rank == 0:
            print(f"{time.strftime('%H:%M:%S')} request {slot.request['id']}: {len(slot.request['prompt'])} + {len(slot.out)} tokens in "
                  f"{time.time() - slot.since:.2f} s", flush=True)

    def serve(self):
        began = time.time()
        self.admit()
        while any(self.slots):
            self.step()
            self.admit()
        if self.rank == 0:
            print(f"served {self.finished} requests, {self.tokens} tokens, {self.tokens / (time.time() - began):.0f} tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--temperature", type=float, default=1.1)
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--timeout", type=int, default=1800)
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    server = Server(args, dist.get_rank(), device, mesh)
    print(f"rank {dist.get_rank()}: weights are ready on {device}", flush=True)
    server.serve()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
