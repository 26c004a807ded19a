"""A second set of plants, by the same list of faults with other models, sizes, step counts and names of functions.

It was written after the analysis and committed before it was recorded, so that its first reading is blind. Rows are as in
`plants.py`. Models are built on the GPU.
"""

import contextlib
import io
import json
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from plants import PLANTS, SETTINGS, SLOW, Plant


def add(name, build, **row):
    PLANTS[name] = Plant(build, **row)


class Layer(nn.Module):
    """A decoder layer with grouped queries and a gated feed-forward part."""

    def __init__(self, dim, n_heads, n_groups):
        super().__init__()
        self.n_heads, self.n_groups, self.head = n_heads, n_groups, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wkv = nn.Linear(dim, 2 * n_groups * self.head, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, 3 * dim, bias=False)
        self.down = nn.Linear(3 * dim, dim, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)

    def forward(self, h):
        b, t, d = h.shape
        x = self.norm1(h)
        q = self.wq(x).view(b, t, self.n_heads, self.head).transpose(1, 2)
        k, v = self.wkv(x).view(b, t, 2, self.n_groups, self.head).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        h = h + self.wo(y.transpose(1, 2).reshape(b, t, d))
        x = self.norm2(h)
        return h + self.down(functional.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    def __init__(self, vocabulary, dim, n_layers):
        super().__init__()
        heads = max(1, dim // 96)
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, max(1, heads // 4)) for _ in range(n_layers)])
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.na, self.nb = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)

    def forward(self, x):
        return x + self.nb(self.b(functional.relu(self.na(self.a(x)))))


def vision(channels, depth):
    parts = [nn.Conv2d(3, channels, 7, stride=4, padding=3)]
    parts += [Residual(channels) for _ in range(depth)]
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*parts)


def on_device(r, make):
    with r.device:
        return make()


def decoder(r, vocabulary=16384, dim=1536, n_layers=10):
    small = {} if r.cuda else {"vocabulary": 64, "dim": 96, "n_layers": 2}
    return on_device(r, lambda: Decoder(**{**dict(vocabulary=vocabulary, dim=dim, n_layers=n_layers), **small}))


def tokens_of(r, n, length, vocabulary=16384):
    if not r.cuda:
        n, length, vocabulary = 2, 16, 64
    return torch.randint(0, vocabulary, (n, length), device=r.device)


def parallel(r, model, **options):
    return DistributedDataParallel(model, device_ids=[r.device.index] if r.cuda else None, **options)


def language_step(r, model, tokens, n_micro=1, hooks=None, fused=True):
    """A step of a language model: gradients of `n_micro` parts are added up."""
    hooks = hooks or {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused and r.cuda)
    nothing = lambda *_: None  # noqa: E731
    of = {key: hooks.get(key, nothing) for key in ("begin", "micro", "backward", "end")}

    def step(n):
        of["begin"](n)
        batch = tokens(n)
        for at, part in enumerate(batch.chunk(n_micro)):
            last = at == n_micro - 1
            with contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync():
                with torch.autocast(r.device.type, dtype=torch.bfloat16):
                    logits = model(part)
                    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), part[:, 1:].flatten())
                loss.backward()
            of["micro"](loss)
        of["backward"](n)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        of["end"](n)

    return step


def language(hooks=None, n_micro=1, batch=(6, 1024), dim=1536, **options):
    def build(r):
        model = parallel(r, decoder(r, dim=dim), **options)
        fixed = tokens_of(r, *batch)
        return language_step(r, model, lambda n: fixed, n_micro, hooks(r, model) if hooks else None)

    return build


add("c-control", language(), steps=3)
add("c-huge-bucket", language(bucket_cap_mb=50_000), cause="no-compute-overlap", control="c-control", steps=3)
add("c-tiny-bucket", language(bucket_cap_mb=0.01), cause="small-messages", also=("none",), control="c-control", steps=3)



def thin_pictures(mb):
    """A deep net of narrow convolutions, whose gradients are small."""

    def build(r):
        model = parallel(r, on_device(r, lambda: vision(64 if r.cuda else 16, 40 if r.cuda else 2)), bucket_cap_mb=mb)
        x = torch.randn(64 if r.cuda else 2, 3, 256 if r.cuda else 32, 256 if r.cuda else 32, device=r.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=r.cuda)

        def step(n):
            with torch.autocast(r.device.type, dtype=torch.bfloat16):
                loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


add("c-tiny-conv", thin_pictures(0.02), cause="small-messages", also=("none",), control="c-tiny-conv-control", steps=3)
add("c-tiny-conv-control", thin_pictures(25), also=("host-bound",), steps=3)

# --- synchronisation, allocator, hosts


def statistics(is_read):
    """The largest value of each gradient, read one by one, or kept on the GPU."""

    def hooks(r, model):
        def backward(n):
            largest = [p.grad.abs().max() for p in model.parameters()] if not is_read else []
            r.log = [p.grad.abs().max().item() for p in model.parameters()] if is_read else torch.stack(largest)

        return {"backward": backward}

    return hooks


SMALL = {"batch": (8, 512), "dim": 768}
add("c-item", language(statistics(True), **SMALL), cause="sync-stalls", control="c-item-control", annotated=False, also=("host-bound",), steps=4)
add("c-item-control", language(statistics(False), **SMALL), annotated=False, also=("host-bound",), steps=4)
add("c-small-control", language(**SMALL), also=("host-bound",), steps=4)


def empties(r, model):
    return {"micro": lambda loss: r.cuda and torch.cuda.empty_cache()}


add("c-empty-cache", language(empties, n_micro=4, batch=(12, 1024)), cause="allocator-stalls", control="c-micro-control", steps=3)
add("c-micro-control", language(n_micro=4, batch=(12, 1024)), steps=3)


def writes_a_log(rank, n):
    """One rank serialises statistics after each step."""

    def hooks(r, model):
        rows = {f"layer.{at}": list(range(120)) for at in range(n)}

        def begin(_):
            if r.rank == rank:
                json.loads(json.dumps(rows))

        return {"begin": begin} if rank is not None else {}

    return hooks


def stalls_in_the_middle(rank, seconds):
    def hooks(r, model):
        return {"backward": lambda n: time.sleep(seconds) if r.rank == rank else None}

    return hooks


add("c-host-straggler", language(writes_a_log(0, 6_000)), cause="straggler", culprit=(0,), control="c-control", steps=3)
add("c-host-late", language(stalls_in_the_middle(1, 0.05)), cause="straggler", culprit=(1,), control="c-control", steps=4)


def averages_weights(rank):
    """One rank computes a moving average of all weights and its distance in each step."""

    def build(r):
        model = parallel(r, decoder(r))
        fixed = tokens_of(r, 6, 1024)
        copies = [p.detach().clone() for p in model.parameters()] if r.rank == rank else []

        def end(n):
            for _ in range(6):
                for mine, p in zip(copies, model.parameters()):
                    mine.mul_(0.99).add_(p.detach(), alpha=0.01)
                    (mine - p.detach()).square().sum()

        return language_step(r, model, lambda n: fixed, hooks={"end": end})

    return build


add("c-compute-straggler", averages_weights(1), cause="straggler", also=("load-imbalance",), culprit=(1,), control="c-control", steps=3)

STREAMER = """
import sys, torch
x = torch.ones(1 << 30, device=f"cuda:{sys.argv[1]}")
print("on", flush=True)
while True:
    for _ in range(50): x.mul_(1.0)
    torch.cuda.synchronize()
"""


def memory_neighbour(rank):
    """Another program streams through the memory of one rank's GPU."""

    def build(r):
        if r.rank == rank and r.cuda:
            other = subprocess.Popen([sys.executable, "-c", STREAMER, str(r.device.index)], stdout=subprocess.PIPE)
            other.stdout.readline()
            r.at_end.append(lambda: (other.kill(), other.wait()))
        return language()(r)

    return build


add("c-slow-gpu", memory_neighbour(0), cause="straggler", culprit=(0,), control="c-control", steps=3)


class Recurrent(nn.Module):
    """A recurrent net, cell by cell or as one operator."""

    def __init__(self, dim, is_fused):
        super().__init__()
        self.net = nn.GRU(dim, dim, batch_first=True) if is_fused else nn.GRUCell(dim, dim)
        self.is_fused, self.out = is_fused, nn.Linear(dim, dim)

    def forward(self, x):
        if self.is_fused:
            return self.out(self.net(x)[0])
        h, all_h = None, []
        for t in range(x.shape[1]):
            h = self.net(x[:, t], h)
            all_h.append(h)
        return self.out(torch.stack(all_h, 1))


def recurrent(is_fused):
    def build(r):
        model = parallel(r, on_device(r, lambda: Recurrent(512, is_fused)))
        x = torch.randn(256 if r.cuda else 2, 200 if r.cuda else 4, 512, device=r.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def step(n):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


add("c-host-bound", recurrent(False), cause="host-bound", control="c-host-bound-control", steps=3)
add("c-host-bound-control", recurrent(True), steps=5)

# --- input


class Pictures(torch.utils.data.IterableDataset):
    """Pictures that a processor decodes."""

    def __init__(self, side, n_batch, seconds):
        self.side, self.n_batch, self.seconds = side, n_batch, seconds

    def __iter__(self):
        raw = io.BytesIO(bytes(self.side * self.side * 3)).getbuffer()
        while True:
            until = time.monotonic() + self.seconds
            picture = torch.frombuffer(raw, dtype=torch.uint8).view(3, self.side, self.side).float()
            while time.monotonic() < until:
                picture = picture.flip(2)
            yield picture


def seen(seconds, n_workers, is_pinned=True, side=384, n_batch=32, ahead=True):
    def build(r):
        s, n = (side, n_batch) if r.cuda else (32, 2)
        model = parallel(r, on_device(r, lambda: vision(256 if r.cuda else 16, 8 if r.cuda else 1)).to(memory_format=torch.channels_last))
        loader = iter(torch.utils.data.DataLoader(
            Pictures(s, n, seconds / n), batch_size=n, num_workers=n_workers, pin_memory=is_pinned and r.cuda,
            prefetch_factor=4 if n_workers else None, multiprocessing_context="fork" if n_workers else None))
        r.keep.append(loader)
        held = [next(loader) for _ in range(2)] if not n_workers and not seconds else None
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=r.cuda)

        def step(n):
            x = held[n % 2] if held else next(loader)
            x = x.to(r.device, non_blocking=is_pinned, memory_format=torch.channels_last)
            with torch.autocast(r.device.type, dtype=torch.bfloat16):
                loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


add("c-loader", seen(0.12, 1), cause="data-loading-bound", control="c-loader-control", steps=6)
add("c-loader-control", seen(0.12, 8), steps=6)
add("c-pageable", seen(0, 0, is_pinned=False, side=768), cause="transfer-bound", control="c-pageable-control", steps=4)
add("c-pageable-control", seen(0, 0, is_pinned=True, side=768), also=("transfer-bound",), steps=4)

# --- communication


def reduced_by_hand(is_async):
    """Gradients of a layer are reduced as soon as they are there, by the program."""

    def build(r):
        model = decoder(r)
        fixed = tokens_of(r, 6, 1024)
        works = []

        def reduce(p):
            work = dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, async_op=is_async)
            if is_async:
                works.append(work)

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(reduce)

        def finish(n):
            while works:
                works.pop().wait()

        return language_step(r, model, lambda n: fixed, hooks={"backward": finish})

    return build


add("c-same-stream", reduced_by_hand(False), cause="no-compute-overlap", control="c-same-stream-control", steps=3)
add("c-same-stream-control", reduced_by_hand(True), steps=3)


def sharded(prefetches):
    def build(r):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        model = decoder(r, dim=3072, n_layers=8)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if r.cuda else MixedPrecisionPolicy()
        for layer in model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        if not prefetches:
            for layer in model.layers:
                layer._set_unshard_async_op(True)
                layer.set_modules_to_backward_prefetch([layer])
        fixed = tokens_of(r, 4, 1024)
        return language_step(r, model, lambda n: fixed)

    return build


add("c-fsdp", sharded(False), cause="no-compute-overlap", control="c-fsdp-control", steps=3)
add("c-fsdp-control", sharded(True), also=("no-compute-overlap",), steps=3)
add("c-no-p2p", language(), cause="bandwidth-below-expected", also=SLOW, control="c-control", steps=3)
SETTINGS["c-no-p2p"] = {"NCCL_P2P_DISABLE": "1"}
add("c-blocking", language(**SMALL), cause="sync-stalls", control="c-small-control", steps=4)
SETTINGS["c-blocking"] = {"CUDA_LAUNCH_BLOCKING": "1"}

# --- unequal work


def documents(is_packed):
    """Documents of unequal lengths, padded to the longest of each rank's batch, or packed to one length."""

    def build(r):
        model = parallel(r, decoder(r))
        shared = torch.distributions.LogNormal(6.3, 0.6).sample((64, r.world, 4)).clamp(64, 2048).to(r.device)
        dist.broadcast(shared, 0)
        longest = (shared.amax(2) / 64).ceil().mul(64).long().tolist()

        def tokens(n):
            return tokens_of(r, 6, 1024 if is_packed else int(longest[n % 64][r.rank]))

        return language_step(r, model, tokens)

    return build


add("c-lengths", documents(False), cause="load-imbalance", also=("straggler",), control="c-lengths-control", steps=8)
add("c-lengths-control", documents(True), steps=4)


class Swap(torch.autograd.Function):
    """all_to_all of rows, and back."""

    @staticmethod
    def forward(ctx, rows, give, take):
        ctx.sizes = give, take
        out = rows.new_empty(sum(take), rows.shape[1])
        dist.all_to_all_single(out, rows, take, give)
        return out

    @staticmethod
    def backward(ctx, grad):
        give, take = ctx.sizes
        out = grad.new_empty(sum(give), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), give, take)
        return out, None, None


class Routed(nn.Module):
    """Two experts a rank; `crowded` of the tokens go to those of rank 0."""

    def __init__(self, dim, rank, world, crowded):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(dim, 3 * dim), nn.SiLU(), nn.Linear(3 * dim, dim)) for _ in range(2)])
        self.rank, self.world, self.crowded = rank, world, crowded

    def forward(self, x):
        rows = functional.silu(self.dense(x))
        first = int(len(rows) * self.crowded)
        rest = (len(rows) - first) // (self.world - 1)
        give = [len(rows) - rest * (self.world - 1)] + [rest] * (self.world - 1)
        take = [give[self.rank]] * self.world
        here = Swap.apply(rows, give, take)
        halves = torch.cat([expert(part) for expert, part in zip(self.experts, here.chunk(2))])
        return x + Swap.apply(halves, take, give)


def routed(crowded):
    def build(r):
        dim, n, depth = (3072, 12288, 5) if r.cuda else (32, 16, 2)
        model = on_device(r, lambda: nn.Sequential(*[Routed(dim, r.rank, r.world, crowded) for _ in range(depth)]))
        x = torch.randn(n, dim, device=r.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

        def step(n):
            with torch.autocast(r.device.type, dtype=torch.bfloat16):
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


add("c-experts", routed(0.8), cause="load-imbalance", also=("straggler",), control="c-experts-control")
add("c-experts-control", routed(0.5), also=("no-compute-overlap",))


def pipeline(n_micro, style="1f1b", unequal=0):
    def build(r):
        from torch.distributed import pipelining

        dim, depth, n, length = (2048, 4, 32, 1024) if r.cuda else (96, 1, n_micro, 8)
        depth += unequal if r.rank == r.world - 1 else 0
        dtype = torch.bfloat16 if r.cuda else torch.float32
        model = on_device(r, lambda: nn.Sequential(*[Layer(dim, dim // 128 or 1, 1) for _ in range(depth)])).to(dtype)
        stage = pipelining.PipelineStage(model, r.rank, r.world, r.device)
        kind = pipelining.Schedule1F1B if style == "1f1b" else pipelining.ScheduleGPipe
        schedule = kind(stage, n_micro, loss_fn=lambda out, target: (out.float() - target.float()).square().mean())
        x = torch.randn(n, length, dim, device=r.device, dtype=dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, fused=r.cuda)

        def step(n):
            if r.rank == 0:
                schedule.step(x)
            elif r.rank == r.world - 1:
                schedule.step(target=x, losses=[])
            else:
                schedule.step()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


add("c-pipeline", pipeline(2), cause="pipeline-bubble", control="c-pipeline-control", annotated=False, steps=5)
add("c-pipeline-control", pipeline(16), also=("pipeline-bubble",), annotated=False, steps=5)
add("c-pipeline-gpipe", pipeline(4, "gpipe"), cause="pipeline-bubble", control="c-pipeline-control")
add("c-pipeline-unequal", pipeline(16, unequal=6), cause="pipeline-bubble", also=("load-imbalance", "straggler"))
