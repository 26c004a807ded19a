# Answers requests with a llama-like model, split over the GPUs by tensor parallelism. Rank 0 has the queue, the others follow.
#
#     torchrun --nproc-per-node 2 serve.py --rps 3
#
# There are no users here: a thread of rank 0 plays them.
import argparse
import collections
import datetime
import logging
import os
import queue
import random
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

VOCAB, EOS = 8192, 0
Request = collections.namedtuple("Request", "id prompt max_new arrived")
logger = logging.getLogger("serve")


class Config:
    dim, layers, heads, ffn, max_len = 2048, 16, 16, 5632, 320


class Column(torch.nn.Module):
    """Rows of the weight are spread over the ranks."""

    def __init__(self, din, dout, world, **where):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(dout // world, din, **where) * din ** -0.5, requires_grad=False)

    def forward(self, x):
        return F.linear(x, self.weight)


class Row(torch.nn.Module):
    """Columns of the weight are spread; the partial results are summed."""

    def __init__(self, din, dout, world, **where):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(dout, din // world, **where) * din ** -0.5, requires_grad=False)

    def forward(self, x):
        y = F.linear(x, self.weight)
        dist.all_reduce(y)
        return y


def rms(x):
    return F.rms_norm(x, (x.shape[-1],))


class Layer(torch.nn.Module):
    def __init__(self, c, world, **where):
        super().__init__()
        self.heads, self.size = c.heads // world, c.dim // c.heads
        self.qkv, self.out = Column(c.dim, 3 * c.dim, world, **where), Row(c.dim, c.dim, world, **where)
        self.gate, self.up, self.down = Column(c.dim, c.ffn, world, **where), Column(c.dim, c.ffn, world, **where), Row(c.ffn, c.dim, world, **where)

    def forward(self, x, cache, at, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(rms(x)).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        cache[0][:, :, at:at + t], cache[1][:, :, at:at + t] = k, v
        a = F.scaled_dot_product_attention(q, cache[0][:, :, :at + t], cache[1][:, :, :at + t], attn_mask=mask)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, -1))
        h = rms(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Engine:
    def __init__(self, config, rank, world, device):
        self.config, self.rank, self.world, self.device = config, rank, world, device
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        torch.manual_seed(17)
        self.embed = torch.randn(VOCAB, config.dim, device=device, dtype=self.dtype)
        torch.manual_seed(100 + rank)
        self.layers = [Layer(config, world, device=device, dtype=self.dtype) for _ in range(config.layers)]
        self.sampler = torch.Generator(device=device).manual_seed(rank)

    def forward(self, tokens, caches, at):
        t = tokens.shape[1]
        mask = torch.ones(t, at + t, dtype=torch.bool, device=self.device).tril(at)
        x = self.embed[tokens]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, at, mask)
        return rms(x[:, -1]) @ self.embed.T / self.config.dim ** 0.5

    def choose(self, logits):
        """Rank 0 draws the next tokens."""
        logits[:, EOS] += 5.5
        token = torch.multinomial(logits.float().softmax(-1), 1, generator=self.sampler)
        dist.broadcast(token, 0)
        return token

    @torch.inference_mode()
    def generate(self, prompts, max_new):
        c, b = self.config, len(prompts)
        shape = (b, c.heads // self.world, c.max_len, c.dim // c.heads)
        caches = [[torch.zeros(shape, device=self.device, dtype=self.dtype) for _ in "kv"] for _ in range(c.layers)]
        length = max(map(len, prompts))
        tokens = torch.tensor([[1] * (length - len(p)) + p for p in prompts], device=self.device)
        at, answer = 0, []
        ended = torch.zeros(b, 1, dtype=torch.bool, device=self.device)
        for n in range(max_new):
            logits = self.forward(tokens, caches, at)
            at += tokens.shape[1]
            tokens = self.choose(logits)
            answer.append(tokens)
            ended |= tokens == EOS
            if ended.all():
                break
        return torch.cat(answer, 1).tolist()


def users(inbox, rps, stop):
    """Prompts come at random times."""
    rng, n = random.Random(3), 0
    while not stop.is_set():
        time.sleep(rng.expovariate(rps))
        n += 1
        prompt = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(16, 160))]
        inbox.put(Request(n, prompt, rng.choice((32, 64, 96)), time.time()))


def collect(inbox, most):
    """Waits a second for a first request, takes what else is there."""
    batch = []
    try:
        batch.append(inbox.get(timeout=1.0))
        while len(batch) < most:
            batch.append(inbox.get_nowait())
    except queue.Empty:
        pass
    return batch


def reply(batch, answers, begun):
    for request, answer in zip(batch, answers):
        words = answer[: request.max_new]
        now = time.time()
        logger.info("POST /v1/completions 200 id=%d prompt=%d new=%d waited=%.3f total=%.3f", request.id, len(request.prompt), len(words), begun - request.arrived, now - request.arrived)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rps", type=float, default=3.0)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--minutes", type=float, default=1.2)
    p.add_argument("--layers", type=int, default=Config.layers)
    p.add_argument("--dim", type=int, default=Config.dim)
    p.add_argument("--timeout", type=int, default=600)
    a = p.parse_args()
    rank, world, local = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(levelname)s: %(asctime)s rank{rank} %(message)s")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=a.timeout))
    config = Config()
    config.layers, config.dim = a.layers, a.dim
    config.ffn = a.dim * 11 // 4 // world * world
    engine = Engine(config, rank, world, device)
    engine.generate([[2, 3, 4]] * a.batch, 4)
    logger.info("ready, %d layers on %s", config.layers, device)
    inbox, stop, began, served = queue.Queue(), threading.Event(), time.time(), 0
    if rank == 0:
        threading.Thread(target=users, args=(inbox, a.rps, stop), daemon=True, name="users").start()
    while True:
        work = [None]
        if rank == 0:
            batch = collect(inbox, a.batch)
            over = time.time() - began > 60 * a.minutes
            work = ["stop" if over else [(r.prompt, r.max_new) for r in batch]]
        dist.broadcast_object_list(work, 0, device=device)
        if work[0] == "stop":
            break
        if not work[0]:
            continue
        begun = time.time()
        prompts, lengths = zip(*work[0])
        answers = engine.generate(list(prompts), max(lengths))
        served += len(prompts)
        if rank == 0:
            reply(batch, answers, begun)
    stop.set()
    logger.info("shut down after %d requests", served)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
