"""A fourth set of plants: other models again (parallel blocks, a mixer, two towers, clips, messages on graphs, a switch), other loops.

It was written without a look at the analysis, and before it was recorded. Rows are as in `plants.py`. It needs PyTorch only.

`FOURTH` lists the rows in the order to run, what tells most first; those of `SETTINGS_OF` run in processes of their own.
"""

import gc
import os
import random
import re
import time
import unicodedata
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from other_plants import add, on_device, parallel
from plants import SETTINGS, SLOW
from third_plants import adamw, amp, nothing, pick


def loop(r, model, loss_of, optimizer=None, clip=True, begin=nothing, scored=nothing, graded=nothing, done=nothing):
    """Gradients are cleared first and clipped, the rate warms up, every tenth loss is read. `scored` comes before backward, `graded` after."""
    optimizer = optimizer or adamw(r, model.parameters())
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 100))

    def step(n):
        begin(n)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(n)
        scored(loss)
        loss.backward()
        graded(loss)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if n % 10 == 0:
            r.log = loss.item()
        done(loss)

    return step


# --- a language model whose attention and feed-forward parts stand side by side


class SideBySide(nn.Module):
    """One product before and one after; a single head of keys and values."""

    def __init__(self, dim, head):
        super().__init__()
        self.sizes, self.head = (dim, head, head, 4 * dim), head
        self.norm = nn.LayerNorm(dim)
        self.enter, self.leave = nn.Linear(dim, sum(self.sizes), bias=False), nn.Linear(5 * dim, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v, wide = self.enter(self.norm(x)).split(self.sizes, -1)
        q, k, v = (part.view(b, t, -1, self.head).transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + self.leave(torch.cat([y.transpose(1, 2).reshape(b, t, -1), functional.gelu(wide)], -1))


class Writer(nn.Module):
    def __init__(self, dim, depth, head, vocabulary, again=False):
        super().__init__()
        self.words, self.norm, self.again = nn.Embedding(vocabulary, dim), nn.LayerNorm(dim), again
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks = nn.ModuleList([SideBySide(dim, head) for _ in range(depth)])

    def forward(self, ids):
        """The mean loss of the next word. The head is the table of words."""
        from torch.utils.checkpoint import checkpoint

        h = self.words(ids)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.again else block(h)
        scores = functional.linear(self.norm(h)[:, :-1], self.words.weight)
        return functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())


VOCABULARY = 16384


def writer(r, dim=2048, depth=8, again=False):
    return on_device(r, lambda: Writer(pick(r, dim, 64), pick(r, depth, 2), pick(r, 128, 16), pick(r, VOCABULARY, 64), again))


def ids_of(r, n, length):
    n, length = (n, length) if r.cuda else (min(n, 2), max(4, length // 64))
    return torch.randint(0, pick(r, VOCABULARY, 64), (n, length), device=r.device)


def writing(hooks=None, batch=(4, 1024), again=False, **options):
    def build(r):
        model = parallel(r, writer(r, again=again), gradient_as_bucket_view=True, **options)
        ids = ids_of(r, *batch)

        def loss_of(n):
            with amp(r):
                return model(ids)

        return loop(r, model, loss_of, **(hooks(r, model) if hooks else {}))

    return build


def tidy(r, model):
    """Averages weights in one go, and sends the loss to pinned memory without waiting for it."""
    with torch.no_grad():
        weights = list(model.parameters())
        means = [p.detach().clone() for p in weights]
    place = torch.zeros((), pin_memory=r.cuda)
    r.keep += [means, place]

    def done(loss):
        with torch.no_grad():
            torch._foreach_lerp_(means, weights, 0.001)
            place.copy_(loss, non_blocking=True)

    return {"done": done}


def compresses(waits):
    """A hook of DDP that averages each bucket: it waits for the sum in the stream of backward, or leaves that to DDP."""

    def hooks(r, model):
        def hook(_, bucket):
            grads = bucket.buffer().div_(r.world)
            if not waits:
                return dist.all_reduce(grads, async_op=True).get_future().then(lambda future: future.value()[0])
            dist.all_reduce(grads)
            future = torch.futures.Future()
            future.set_result(grads)
            return future

        model.register_comm_hook(None, hook)
        return {}

    return hooks


def gathers_each(r, model):
    """Each figure of a table is gathered from all ranks by a call of its own; nobody reads them here."""
    n_figures = pick(r, 192, 6)
    scale = torch.arange(n_figures, device=r.device, dtype=torch.float32)

    def graded(loss):
        figures = (loss.detach() * scale).split(1)
        r.log = [[torch.empty_like(figure) for _ in range(r.world)] for figure in figures]
        for row, figure in zip(r.log, figures):
            dist.all_gather(row, figure)

    return {"graded": graded}


def reads_each(r, model):
    """The loss of each kind of text is averaged and read before backward begins."""
    n_kinds = pick(r, 64, 4)
    scale = torch.arange(n_kinds, device=r.device, dtype=torch.float32)

    def scored(loss):
        r.log = []
        for value in (loss.detach() * scale).unbind():
            dist.all_reduce(value)
            r.log.append(value.item() / r.world)

    return {"scored": scored}


def guards_memory(r, model):
    """Every block returns unused memory if more than 4 GB are reserved, "so that nothing runs out"."""

    def guard(*_):
        if r.cuda and torch.cuda.memory_reserved() > 4 << 30:
            torch.cuda.empty_cache()

    for block in model.module.blocks:
        block.register_forward_hook(guard)
    return {}


def collects(rank, seconds):
    """On one rank a large data set lies in Python objects, and garbage is collected in each step."""

    def hooks(r, model):
        if r.rank != rank:
            return {}
        gc.collect()
        begin = time.monotonic()
        gc.collect()
        base = time.monotonic() - begin
        gc.disable()
        rows = [{"at": at, "row": [at]} for at in range(pick(r, 200_000, 2_000))]
        begin = time.monotonic()
        gc.collect()
        each = max(1e-8, (time.monotonic() - begin - base) / len(rows))
        rows += [{"at": at, "row": [at]} for at in range(min(2_000_000, max(0, int((seconds - base) / each) - len(rows))))]
        gc.enable()
        r.keep.append(rows)
        return {"done": lambda loss: gc.collect()}

    return hooks


def without_amp(rank):
    """One rank was started without mixed precision."""

    def build(r):
        model = parallel(r, writer(r), gradient_as_bucket_view=True)
        ids = ids_of(r, 4, 1024)
        if r.rank == rank:
            before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")
            r.at_end.append(lambda: torch.set_float32_matmul_precision(before))

        def loss_of(n):
            with torch.autocast(r.device.type, dtype=torch.bfloat16, enabled=r.rank != rank):
                return model(ids)

        return loop(r, model, loss_of)

    return build


def lengths(r):
    """Texts are as long as they are: each rank has a length of its own in each step, as many words in all as the control."""
    table = [640, -384, -704, 512, -256, 192]
    model = writer(r)
    with amp(r):
        # The longest once, so that its memory is there.
        model(ids_of(r, 4, 1728)).backward()
    model.zero_grad(set_to_none=True)
    model = parallel(r, model, gradient_as_bucket_view=True)

    def loss_of(n):
        more = table[n % len(table)] * (1 if r.rank % 2 == 0 else -1)
        with amp(r):
            return model(ids_of(r, 4, 1024 + more))

    return loop(r, model, loss_of)


add("f-writer", writing())
add("f-tidy", writing(tidy))
add("f-recompute", writing(again=True))
add("f-hook", writing(compresses(False)))
add("f-hook-waits", writing(compresses(True)), cause="no-compute-overlap", control="f-hook")
add("f-one-bucket", writing(bucket_cap_mb=30_000), cause="no-compute-overlap", control="f-writer")
add("f-gather-each", writing(gathers_each), cause="small-messages", also=("host-bound",), control="f-writer", steps=3)
add("f-read-each", writing(reads_each), cause="sync-stalls", also=("small-messages",), control="f-writer", steps=3)
add("f-memory-guard", writing(guards_memory), cause="allocator-stalls", control="f-writer")
add("f-rank-collects", writing(collects(0, 0.08)), cause="straggler", also=("host-bound",), culprit=(0,), control="f-writer")
add("f-rank-without-amp", without_amp(1), cause="straggler", also=("load-imbalance",), culprit=(1,), control="f-writer")
add("f-lengths", lengths, cause="load-imbalance", also=("straggler",), control="f-writer", steps=6)


def in_parts(waits, n_parts=4):
    """Gradients of several parts are added up: those of the last one are averaged, or those of each."""

    def build(r):
        model = parallel(r, writer(r, dim=4096, depth=3), gradient_as_bucket_view=True)
        parts = [ids_of(r, 1, 1024) for _ in range(n_parts)]

        def loss_of(at):
            with amp(r):
                return model(parts[at]) / n_parts

        def all_but_last(n):
            for at in range(n_parts - 1):
                if waits:
                    with model.no_sync():
                        loss_of(at).backward()
                else:
                    loss_of(at).backward()
            return loss_of(n_parts - 1)

        return loop(r, model, all_but_last)

    return build


add("f-parts", in_parts(True), steps=3)
add("f-parts-each", in_parts(False), cause="no-compute-overlap", control="f-parts", steps=3)

# --- FSDP2


def sharded_writer(is_prefetched):
    """Blocks are sharded one by one; their weights are gathered ahead, or when they are needed."""

    def build(r):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        model = writer(r, dim=4096, depth=6)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if r.cuda else MixedPrecisionPolicy()
        for unit in [*model.blocks, model]:
            fully_shard(unit, mp_policy=policy)
        if not is_prefetched:
            for unit in [*model.blocks, model]:
                unit._set_unshard_async_op(True)
                unit.set_modules_to_backward_prefetch([unit])
        ids = ids_of(r, 4, 1024)
        return loop(r, model, lambda n: model(ids), clip=False)

    return build


add("f-sharded", sharded_writer(True), steps=3)
add("f-gathered-late", sharded_writer(False), cause="no-compute-overlap", control="f-sharded", steps=3)

# --- a mixer of pictures


class Mixer(nn.Module):
    """Mixes places, then channels."""

    def __init__(self, places, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.places = nn.Sequential(nn.Linear(places, 256), nn.GELU(), nn.Linear(256, places))
        self.channels = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, dim, patch):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, patch, patch)

    def forward(self, pictures):
        return self.conv(pictures).flatten(2).transpose(1, 2)


class Mean(nn.Module):
    def __init__(self, dim, n_classes):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, n_classes)

    def forward(self, x):
        return self.out(self.norm(x).mean(1))


def mixer(r, depth=32, dim=512, together=4):
    """Blocks stand in groups of `together`."""
    side, patch = pick(r, (224, 16), (32, 16))
    depth, dim = pick(r, depth, 4), pick(r, dim, 32)
    groups = lambda: [nn.Sequential(*[Mixer((side // patch) ** 2, dim) for _ in range(together)]) for _ in range(depth // together)]  # noqa: E731
    return on_device(r, lambda: nn.Sequential(Patches(dim, patch), *groups(), Mean(dim, 1000)))


def pictures_of(r, n):
    n, side = pick(r, n, 2), pick(r, 224, 32)
    return torch.randn(n, 3, side, side, device=r.device), torch.randint(0, 1000, (n,), device=r.device)


def mixing(n=64, optimizer=None, prepare=nothing, **options):
    def build(r):
        model = parallel(r, mixer(r), gradient_as_bucket_view=True, **options)
        prepare(r, model)
        pictures, kinds = pictures_of(r, n)

        def loss_of(_):
            with amp(r):
                return functional.cross_entropy(model(pictures).float(), kinds)

        return loop(r, model, loss_of, optimizer(model) if optimizer else None)

    return build


def stopwatch(r, model):
    """A stopwatch around each block: the GPU must be idle when it starts and when it stops."""
    times = {}

    def start(module, _):
        r.synchronize()
        times[module] = time.perf_counter()

    def stop(module, *_):
        r.synchronize()
        times[module] = time.perf_counter() - times[module]

    for module in model.modules():
        if isinstance(module, Mixer):
            module.register_forward_pre_hook(start)
            module.register_forward_hook(stop)


add("f-mixer", mixing(), steps=3)
add("f-bucket-each", mixing(bucket_cap_mb=0.001), cause="small-messages", also=("host-bound",), control="f-mixer", steps=3)
add("f-adam-loop", mixing(optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-5, foreach=False)), cause="host-bound",
    control="f-mixer", steps=2)
add("f-stopwatch", mixing(prepare=stopwatch), cause="sync-stalls", also=("host-bound",), control="f-mixer", steps=3)
add("f-blocking", mixing(), cause="sync-stalls", also=("host-bound",), control="f-mixer", steps=3)


def sharded_mixer(each_layer):
    """Groups of blocks are sharded, or each linear layer by itself."""

    def build(r):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        model = mixer(r)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if r.cuda else MixedPrecisionPolicy()
        units = [part for part in model.modules() if isinstance(part, nn.Linear)] if each_layer else list(model)[1:-1]
        for unit in [*units, model]:
            fully_shard(unit, mp_policy=policy)
        pictures, kinds = pictures_of(r, 192)
        return loop(r, model, lambda n: functional.cross_entropy(model(pictures).float(), kinds), clip=False)

    return build


add("f-groups-sharded", sharded_mixer(False), steps=3)
add("f-layers-sharded", sharded_mixer(True), cause="small-messages", also=("host-bound",), control="f-groups-sharded", steps=2)


class Files(torch.utils.data.Dataset):
    """Pictures as they lie on a disk: differences of neighbours, deflated, as in a PNG."""

    def __init__(self, side):
        self.side, chance = side, random.Random(3)
        self.files = []
        for _ in range(16):
            row = bytes(chance.choice((0, 0, 0, 1, 2, 254, 255)) for _ in range(3 * side * 8))
            self.files.append(zlib.compress(row * (side // 8), 6))

    def __len__(self):
        return 1_000_000

    def __getitem__(self, at):
        """Undoes the differences, crops, and flips."""
        raw = torch.frombuffer(bytearray(zlib.decompress(self.files[at % len(self.files)])), dtype=torch.uint8)
        picture = raw.view(self.side, self.side, 3).cumsum(1, dtype=torch.uint8).permute(2, 0, 1)
        out = self.side * 7 // 8
        top, left = random.randrange(self.side - out + 1), random.randrange(self.side - out + 1)
        picture = picture[:, top : top + out, left : left + out]
        if random.random() < 0.5:
            picture = picture.flip(2)
        return picture.contiguous(), at % 1000


def decoded(n_workers, n=64):
    def build(r):
        model = parallel(r, mixer(r), gradient_as_bucket_view=True)
        n_pictures, workers = pick(r, n, 2), pick(r, n_workers, min(1, n_workers))
        # 256 pixels a side become 224, or 40 become 35, of which 32 are used.
        loader = torch.utils.data.DataLoader(
            Files(pick(r, 256, 40)), batch_size=n_pictures, num_workers=workers, pin_memory=r.cuda,
            prefetch_factor=4 if workers else None, multiprocessing_context="fork" if workers else None)
        batches = iter(loader)
        r.keep.append(batches)
        side = pick(r, 224, 32)

        def loss_of(_):
            pictures, kinds = next(batches)
            pictures = pictures.to(r.device, non_blocking=True)[..., :side, :side].float().div_(255)
            with amp(r):
                return functional.cross_entropy(model(pictures).float(), kinds.to(r.device, non_blocking=True))

        return loop(r, model, loss_of)

    return build


add("f-decoded", decoded(10), steps=6)
add("f-decode-here", decoded(0), cause="data-loading-bound", also=("host-bound",), control="f-decoded", steps=4)
add("f-one-worker", decoded(1), cause="data-loading-bound", control="f-decoded", steps=6)

# --- pictures and their texts


class Gated(nn.Module):
    """Attention with normed queries and keys, and a gated feed-forward part."""

    def __init__(self, dim, head):
        super().__init__()
        self.head = head
        self.norm1, self.norm2, self.unit = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.RMSNorm(head, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wide, self.narrow = nn.Linear(dim, 6 * dim, bias=False), nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, -1, self.head).unbind(2)
        q, k, v = self.unit(q).to(v.dtype).transpose(1, 2), self.unit(k).to(v.dtype).transpose(1, 2), v.transpose(1, 2)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        gate, up = self.wide(self.norm2(x)).chunk(2, -1)
        return x + self.narrow(functional.silu(gate) * up)


class Towers(nn.Module):
    """One of pictures, one of texts; both end in features of unit length."""

    def __init__(self, dim, depth, head, vocabulary, n_features):
        super().__init__()
        self.patches, self.words = Patches(dim, 16), nn.Embedding(vocabulary, dim)
        self.see = nn.Sequential(*[Gated(dim, head) for _ in range(depth)])
        self.read = nn.Sequential(*[Gated(dim, head) for _ in range(depth // 2)])
        self.seen, self.told = nn.Linear(dim, n_features), nn.Linear(dim, n_features)

    def forward(self, pictures, ids):
        seen = self.seen(self.see(self.patches(pictures)).mean(1))
        told = self.told(self.read(self.words(ids)).mean(1))
        return functional.normalize(seen.float(), dim=-1), functional.normalize(told.float(), dim=-1)


def contrasted(prints=False, bank_on_host=False, tight=False):
    """Each picture is compared with all texts of all ranks, and with a bank of older ones; the bank is searched for near copies."""

    def build(r):
        n, n_features, n_bank, n_asked = (160, 512, 131_072, 16_384) if r.cuda else (4, 16, 64, 8)
        make = lambda: Towers(pick(r, 1024, 64), pick(r, 12, 2), pick(r, 64, 16), pick(r, VOCABULARY, 64), n_features)  # noqa: E731
        model = parallel(r, on_device(r, make), gradient_as_bucket_view=True)
        side = pick(r, 128, 32)
        pictures, ids = torch.randn(n, 3, side, side, device=r.device), ids_of(r, n, 64)
        bank = functional.normalize(torch.randn(n_bank, n_features, device="cpu" if bank_on_host else r.device), dim=-1)
        right = torch.arange(n, device=r.device)
        sink = open(os.devnull, "w")
        r.keep += [bank, sink]
        r.at_end.append(sink.close)

        def loss_of(_):
            older = bank.to(r.device)
            with torch.no_grad():
                asked = older[:n_asked].bfloat16()
                r.extra = torch.mm(asked, older.bfloat16().t()).amax(1)
            with amp(r):
                seen, told = model(pictures, ids)
            others = [torch.empty_like(told) for _ in range(r.world)]
            dist.all_gather(others, told.detach())
            others = others[: r.rank] + others[r.rank + 1 :]
            scores = torch.mm(seen, torch.cat([told, *others, older]).t()) / 0.07
            if prints:
                print("features", seen[0, :128].detach(), "scores", scores[0, :64].detach(), "nearest", r.extra[:64], file=sink)
            return functional.cross_entropy(scores, right) + functional.cross_entropy(scores[:, :n].t(), right)

        step = loop(r, model, loss_of)
        if tight and r.cuda:
            # Just enough memory for the search or for the rest, not for what both leave behind: the settings of this plant forbid it to be split.
            for at in range(2):
                step(at)
            r.synchronize()
            search = n_bank * n_asked * 2
            limit = torch.cuda.memory_reserved() - int(0.7 * search)
            print("limit of memory", limit >> 20, "MiB, reserved without it", torch.cuda.memory_reserved() >> 20, "MiB", flush=True)
            torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(r.device).total_memory)
            torch.cuda.empty_cache()
            r.at_end += [lambda: print("retries", torch.cuda.memory_stats()["num_alloc_retries"], flush=True),
                         lambda: torch.cuda.set_per_process_memory_fraction(1.0)]
        return step

    return build


add("f-towers", contrasted())
add("f-prints", contrasted(prints=True), cause="sync-stalls", also=("host-bound",), control="f-towers", steps=3)
add("f-bank-on-host", contrasted(bank_on_host=True), cause="transfer-bound", control="f-towers")
add("f-nearly-full", contrasted(tight=True), cause="allocator-stalls", control="f-towers", steps=3)

# --- clips


class Clips(nn.Module):
    def __init__(self, dim, depth, head, tube):
        super().__init__()
        self.tubes = nn.Conv3d(3, dim, tube, tube)
        self.blocks = nn.Sequential(*[Gated(dim, head) for _ in range(depth)])
        self.out = Mean(dim, 400)

    def forward(self, clips):
        return self.out(self.blocks(self.tubes(clips).flatten(2).transpose(1, 2)))


def watching(as_bytes):
    """Clips come from the host: as bytes in pinned memory, or as numbers of four bytes each in ordinary memory."""

    def build(r):
        n, frames, side = pick(r, (24, 16, 224), (2, 4, 32))
        make = lambda: Clips(pick(r, 768, 32), pick(r, 6, 2), pick(r, 64, 16), pick(r, (2, 16, 16), (2, 16, 16)))  # noqa: E731
        model = parallel(r, on_device(r, make), gradient_as_bucket_view=True)
        stored = [torch.randint(0, 256, (n, 3, frames, side, side), dtype=torch.uint8) for _ in range(2)]
        if as_bytes:
            stored = [clips.pin_memory() if r.cuda else clips for clips in stored]
        else:
            stored = [clips.float().div_(255) for clips in stored]
        kinds = torch.randint(0, 400, (n,), device=r.device)

        def loss_of(at):
            clips = stored[at % 2].to(r.device, non_blocking=True)
            if as_bytes:
                clips = clips.float().div_(255)
            with amp(r):
                return functional.cross_entropy(model(clips).float(), kinds)

        return loop(r, model, loss_of)

    return build


add("f-clips", watching(True))
add("f-clips-pageable", watching(False), cause="transfer-bound", control="f-clips")

# --- messages on graphs


class Messages(nn.Module):
    """What a node learns from its neighbours."""

    def __init__(self, dim):
        super().__init__()
        self.ask = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
        self.keep, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim)

    def forward(self, nodes, begin, end):
        message = self.ask(torch.cat([nodes.index_select(0, begin), nodes.index_select(0, end)], 1))
        heard = torch.zeros_like(nodes).index_add_(0, end, message.to(nodes.dtype))
        return nodes + self.norm(self.keep(nodes) + heard).to(nodes.dtype)


class Graph(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers, self.out = nn.ModuleList([Messages(dim) for _ in range(depth)]), nn.Linear(dim, 1)

    def forward(self, nodes, begin, end):
        for layer in self.layers:
            nodes = layer(nodes, begin, end)
        return self.out(nodes)


def walks(table, seconds):
    """Draws neighbours of neighbours in plain Python, for as long as that takes for a batch."""
    until, at, drawn = time.monotonic() + seconds, 0, []
    while time.monotonic() < until:
        drawn.append([table[(at * 31 + hop) % len(table)][random.randrange(8)] for hop in range(64)])
        at = drawn[-1][-1]
    return len(drawn)


def graphs(shares=(1.0, 1.0), draws=()):
    """Edges of each rank, as a share of the usual; seconds that `draws` of a rank take."""

    def build(r):
        dim, depth, n_nodes, n_edges = (256, 5, 100_000, 500_000) if r.cuda else (16, 2, 50, 200)
        model = parallel(r, on_device(r, lambda: Graph(dim, depth)), gradient_as_bucket_view=True)
        n_mine, seconds = int(n_edges * shares[r.rank % 2]), dict(draws).get(r.rank, 0)
        nodes, wanted = torch.randn(n_nodes, dim, device=r.device), torch.randn(n_nodes, 1, device=r.device)
        begin, end = torch.randint(0, n_nodes, (2, n_mine), device=r.device)
        table = [[random.randrange(4096) for _ in range(8)] for _ in range(4096)]

        def loss_of(_):
            if seconds:
                r.log = walks(table, seconds)
            with amp(r):
                return functional.mse_loss(model(nodes, begin, end).float(), wanted)

        return loop(r, model, loss_of)

    return build


add("f-graphs", graphs())
add("f-rank-draws", graphs(draws=((1, 0.08),)), cause="straggler", also=("host-bound", "data-loading-bound"), culprit=(1,), control="f-graphs")
add("f-rank-more-edges", graphs(shares=(1.5, 0.5)), cause="load-imbalance", also=("straggler",), culprit=(0,), control="f-graphs",
    annotated=False)

# --- a switch: one expert a rank


class Exchange(torch.autograd.Function):
    """Rows to the ranks that want them."""

    @staticmethod
    def forward(ctx, rows, out_sizes, in_sizes):
        ctx.back = in_sizes, out_sizes
        got = rows.new_empty(sum(out_sizes), rows.shape[1])
        dist.all_to_all_single(got, rows.contiguous(), out_sizes, in_sizes)
        return got

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, *ctx.back), None, None


class Switch(nn.Module):
    """A token goes to one expert. Sizes are fixed, so that no rank has to ask for them; `share` of all tokens go to rank 0."""

    def __init__(self, dim, rank, world, share):
        super().__init__()
        self.rank, self.world, self.share = rank, world, share
        self.norm, self.router = nn.LayerNorm(dim), nn.Linear(dim, 1, bias=False)
        self.expert = nn.Sequential(nn.Linear(dim, 4 * dim, bias=False), nn.GELU(), nn.Linear(4 * dim, dim, bias=False))

    def forward(self, x):
        rows = x.flatten(0, 1)
        first = int(len(rows) * self.share)
        give = [first] + [(len(rows) - first) // (self.world - 1)] * (self.world - 1)
        give[-1] = len(rows) - sum(give[:-1])
        take = [give[self.rank]] * self.world
        score = self.router(rows).flatten()
        order = score.argsort()
        sent = self.norm(rows).index_select(0, order)
        got = Exchange.apply(self.expert(Exchange.apply(sent, take, give)), give, take)
        gate = score.index_select(0, order).sigmoid().unsqueeze(1)
        return (rows.index_add(0, order, (got * gate).to(rows.dtype))).view_as(x)


def switched(share):
    """No gradients are averaged: each rank has its own expert, and the small rest is left out."""

    def build(r):
        dim, depth, n, length = (2048, 6, 16, 1024) if r.cuda else (32, 2, 2, 16)
        dtype = pick(r, torch.bfloat16, torch.float32)
        model = on_device(r, lambda: nn.Sequential(*[Switch(dim, r.rank, r.world, share) for _ in range(depth)])).to(dtype)
        x = torch.randn(n, length, dim, device=r.device, dtype=dtype)
        return loop(r, model, lambda _: model(x).float().square().mean(), clip=False)

    return build


add("f-switch", switched(0.5), also=("no-compute-overlap",))
add("f-hot-expert", switched(0.8), cause="load-imbalance", also=("straggler",), culprit=(0,), control="f-switch")

# --- heads


class Heads(nn.Module):
    """Attention whose heads are modules of their own, or one product for all; the same weights in all."""

    def __init__(self, dim, head, each):
        super().__init__()
        self.head, self.each = head, each
        self.norm, self.norm2, self.out = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Linear(dim, dim, bias=False)
        sizes = [head] * (dim // head) if each else [dim]
        self.q, self.k, self.v = (nn.ModuleList([nn.Linear(dim, size, bias=False) for size in sizes]) for _ in range(3))
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, _ = x.shape
        y, found = self.norm(x), []
        for layers in zip(self.q, self.k, self.v):
            q, k, v = (layer(y).view(b, t, -1, self.head).transpose(1, 2) for layer in layers)
            found.append(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, -1))
        x = x + self.out(torch.cat(found, -1))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


def attending(each):
    def build(r):
        dim, head, depth, n, length = (1024, 64, 10, 16, 512) if r.cuda else (32, 16, 2, 2, 8)
        make = lambda: nn.Sequential(*[Heads(dim, head, each) for _ in range(depth)])  # noqa: E731
        model = parallel(r, on_device(r, make), gradient_as_bucket_view=True)
        x = torch.randn(n, length, dim, device=r.device)

        def loss_of(_):
            with amp(r):
                return model(x).float().square().mean()

        return loop(r, model, loss_of)

    return build


add("f-heads", attending(False))
add("f-heads-each", attending(True), cause="host-bound", control="f-heads", steps=2)

# --- a relay: stages that pass on their work by hand


class Ends(nn.Module):
    def __init__(self, dim, vocabulary):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, x, wanted):
        return functional.cross_entropy(self.out(self.norm(x)).flatten(0, 1).float(), wanted.flatten())


def relay(n_parts):
    """All parts forward, then all backward: rank 0 hands on to rank 1, which has the head."""

    def build(r):
        dim, depth, n, length = (2048, 5, 32, 1024) if r.cuda else (32, 2, 16, 8)
        dtype, is_last = pick(r, torch.bfloat16, torch.float32), r.rank == r.world - 1
        make = lambda: nn.ModuleList(  # noqa: E731
            [SideBySide(dim, pick(r, 128, 16)) for _ in range(depth - is_last)] + ([Ends(dim, pick(r, VOCABULARY, 64))] if is_last else []))
        model = on_device(r, make).to(dtype)
        blocks = list(model)[: depth - is_last]
        x = torch.randn(n, length, dim, device=r.device, dtype=dtype)
        wanted = torch.randint(0, pick(r, VOCABULARY, 64), (n, length), device=r.device)
        optimizer = adamw(r, model.parameters())

        def step(_):
            optimizer.zero_grad(set_to_none=True)
            outs, ins = [], []
            for mine, target in zip(x.chunk(n_parts), wanted.chunk(n_parts)):
                h = mine
                if r.rank > 0:
                    h = torch.empty_like(mine)
                    dist.recv(h, r.rank - 1)
                    h.requires_grad_()
                ins.append(h)
                for block in blocks:
                    h = block(h)
                if is_last:
                    h = model[-1](h, target) / n_parts
                else:
                    dist.send(h.detach(), r.rank + 1)
                outs.append(h)
            for h, out in zip(ins, outs):
                if is_last:
                    out.backward()
                else:
                    grad = torch.empty_like(out)
                    dist.recv(grad, r.rank + 1)
                    out.backward(grad)
                if r.rank > 0:
                    dist.send(h.grad, r.rank - 1)
            optimizer.step()

        return step

    return build


add("f-relay", relay(16), also=("pipeline-bubble",), steps=2)
add("f-relay-halves", relay(2), cause="pipeline-bubble", control="f-relay", steps=3)

# --- texts with blanks


class Linearly(nn.Module):
    """Attention without a softmax over places: keys and values are summed up first."""

    def __init__(self, dim, head):
        super().__init__()
        self.head = head
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, -1, self.head).permute(2, 0, 3, 1, 4)
        y = q.softmax(-1).to(v.dtype) @ (k.softmax(-2).to(v.dtype).transpose(-1, -2) @ v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class Blanks(nn.Module):
    """Says which words were blanked; embeds words and the three pieces that end there."""

    def __init__(self, dim, depth, head, vocabulary):
        super().__init__()
        self.words, self.pieces = nn.Embedding(vocabulary, dim), nn.EmbeddingBag(vocabulary, dim, mode="sum")
        self.blocks = nn.Sequential(*[Linearly(dim, head) for _ in range(depth)])
        self.out = nn.Linear(dim, vocabulary)

    def forward(self, ids, pieces, wanted):
        h = self.words(ids) + self.pieces(pieces.flatten(0, 1)).view(*ids.shape, -1)
        return functional.cross_entropy(self.out(self.blocks(h)).flatten(0, 1).float(), wanted.flatten())


TOP = 8192


class Shelf(torch.utils.data.Dataset):
    """Texts, or their words as numbers."""

    def __init__(self, length, top, as_text):
        chance = random.Random(17)
        parts = ["an", "be", "cro", "dis", "el", "for", "gen", "ha", "ist", "jur", "kel", "lo", "mer", "ne", "ob", "pre", "qui", "ran", "sub", "ter"]
        words = ["".join(chance.choices(parts, k=chance.randint(2, 5))) for _ in range(3000)]
        # Every word is cut into pieces of the vocabulary, the longest that fits first.
        self.known = {word[at:to]: None for word in words[::2] for at in range(len(word)) for to in range(at + 1, min(len(word), at + 7) + 1)}
        self.known = {piece: 5 + at % (top - 5) for at, piece in enumerate(self.known)}
        self.length, self.as_text = length, as_text
        self.texts = [" ".join(chance.choices(words, k=length)) for _ in range(48)]
        self.rows = [[5 + chance.randrange(top - 5) for _ in range(length)] for _ in range(48)]

    def __len__(self):
        return 1_000_000

    def __getitem__(self, at):
        return self.cut(self.texts[at % 48]) if self.as_text else self.rows[at % 48]

    def cut(self, text):
        text = "".join(letter for letter in unicodedata.normalize("NFD", text) if unicodedata.category(letter) not in ("Mn", "Cc", "Cf"))
        found = []
        for word in re.findall(r"[^\W\d_]+|\d+|[^\w\s]", text.lower()):
            at = 0
            while at < len(word):
                for to in range(len(word), at, -1):
                    if word[at:to] in self.known:
                        found.append(self.known[word[at:to]])
                        break
                else:
                    to = at + 1
                    found.append(1)
                at = to
        return found[: self.length] + [0] * (self.length - len(found))


def blanked(top, in_python):
    """Blanks every seventh word by chance and looks up pieces of two, three and four words: with tensors, or word by word."""

    def collate(rows):
        if not in_python:
            wanted = torch.tensor(rows)
            ids = torch.where(torch.rand(wanted.shape) < 1 / 7, 4, wanted)
            pieces = torch.stack([(wanted * 31 + wanted.roll(n, 1) * 17) % top for n in (1, 2, 3)], -1)
            return ids, pieces, wanted
        ids, pieces = [], []
        for row in rows:
            chosen = []
            for word in row:
                chance = random.random()
                chosen.append(4 if chance < 0.12 else random.randrange(5, top) if chance < 1 / 7 else word)
            ids.append(chosen)
            pieces.append([[hash(tuple(row[max(0, at - n) : at + 1])) % top for n in (1, 2, 3)] for at in range(len(row))])
        return torch.tensor(ids), torch.tensor(pieces), torch.tensor(rows)

    return collate


def filling(n_workers, as_text, in_python):
    def build(r):
        top, n, length = pick(r, TOP, 64), pick(r, 32, 2), pick(r, 512, 8)
        make = lambda: Blanks(pick(r, 1024, 32), pick(r, 8, 2), pick(r, 64, 16), top)  # noqa: E731
        model = parallel(r, on_device(r, make), gradient_as_bucket_view=True)
        workers = pick(r, n_workers, min(1, n_workers))
        loader = torch.utils.data.DataLoader(
            Shelf(length, top, as_text), batch_size=n, num_workers=workers, collate_fn=blanked(top, in_python), pin_memory=r.cuda,
            prefetch_factor=4 if workers else None, multiprocessing_context="fork" if workers else None)
        batches = iter(loader)
        r.keep.append(batches)

        def loss_of(_):
            ids, pieces, wanted = (part.to(r.device, non_blocking=True) for part in next(batches))
            with amp(r):
                return model(ids, pieces, wanted)

        return loop(r, model, loss_of)

    return build


add("f-blanks", filling(10, True, True), steps=6)
add("f-tokenise-here", filling(0, True, False), cause="data-loading-bound", also=("host-bound",), control="f-blanks", steps=6)
add("f-collate-here", filling(0, False, True), cause="data-loading-bound", also=("host-bound",), control="f-blanks", steps=6)

# --- settings of the process

add("f-no-p2p", writing(), cause="bandwidth-below-expected", also=SLOW, control="f-writer", steps=3)
add("f-one-channel", writing(), cause="bandwidth-below-expected", also=SLOW, control="f-writer", steps=3)

# Set for a search of a fault and forgotten; set to leave the GPU to others; found in a thread about running out of memory.
SETTINGS_OF = {
    "f-no-p2p": {"NCCL_P2P_DISABLE": "1"},
    "f-nearly-full": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:256"},
    "f-blocking": {"CUDA_LAUNCH_BLOCKING": "1"},
    "f-one-channel": {"NCCL_MIN_NCHANNELS": "1", "NCCL_MAX_NCHANNELS": "1"},
}
SETTINGS.update(SETTINGS_OF)

# A control comes before its plants.
FOURTH = [
    "f-writer", "f-rank-collects", "f-rank-without-amp", "f-one-bucket", "f-lengths", "f-read-each", "f-memory-guard", "f-mixer",
    "f-stopwatch", "f-adam-loop", "f-bucket-each", "f-towers", "f-prints", "f-bank-on-host", "f-sharded", "f-gathered-late", "f-switch",
    "f-hot-expert", "f-graphs", "f-rank-draws", "f-clips", "f-clips-pageable", "f-decoded", "f-decode-here", "f-heads", "f-heads-each",
    "f-relay", "f-relay-halves", "f-parts", "f-parts-each", "f-blanks", "f-tokenise-here", "f-hook", "f-hook-waits", "f-gather-each",
    "f-recompute", "f-tidy", "f-groups-sharded", "f-layers-sharded", "f-one-worker", "f-rank-more-edges", "f-collate-here",
]
