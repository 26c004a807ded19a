"""The plants: training jobs with one inefficiency each, and the same jobs without it.

A plant is a function that takes a `Rank` and returns the function of one step. Its row states the inefficiency, the
rank to blame, and the row of the same job without the fault: the gain that `ringleader trace` estimates is
compared with the difference of the two measured steps.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import models


@dataclass
class Plant:
    """The planted inefficiency, and how to record it."""

    build: object
    cause: str = "none"
    also: tuple = ()
    culprit: tuple = ()
    control: str = ""
    annotated: bool = True
    stacks: bool = False
    steps: int = 4


PLANTS = {}


def plant(name, **row):
    def add(build):
        PLANTS[name] = Plant(build, **row)
        return build

    return add


def add(name, build, **row):
    PLANTS[name] = Plant(build, **row)


# --- shared by most jobs


def batch(r, tokens=4096, width=2048, length=512):
    return torch.randn(max(1, tokens // length), length, width, device=r.device)


def ddp(r, model, **options):
    model = model.to(r.device)
    return DDP(model, device_ids=[r.device.index] if r.cuda else None, **options)


def train(r, model, inputs, optimizer=None, before=None, after=None):
    """One step: input, forward, backward, optimizer. `before` and `after` are hooks for faults."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

    def step(n):
        if before:
            before(n)
        x = inputs(n)
        with torch.autocast(r.device.type, dtype=torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        if after:
            after(n, model, loss)
        optimizer.step()
        optimizer.zero_grad()

    return step


def size(r, **full):
    """The sizes of a plant; without a GPU small ones, to test the program."""
    return full if r.cuda else {key: min(value, {"width": 64, "layers": 2, "tokens": 64, "length": 32}[key]) for key, value in full.items()}


def plain(r, kind, **options):
    if kind == "transformer":
        s = size(r, width=2048, layers=6, tokens=12288, length=512)
        fixed = batch(r, s["tokens"], s["width"], s["length"])
        return ddp(r, models.transformer(s["width"], s["layers"]), **options), lambda n: fixed
    s = size(r, width=6144, layers=8, tokens=4096, length=512)
    fixed = batch(r, s["tokens"], s["width"], s["length"]).flatten(0, 1)
    return ddp(r, models.mlp(s["width"], s["layers"]), **options), lambda n: fixed


# --- controls and buckets


def bucket(kind, mb, **more):
    def build(r):
        model, inputs = plain(r, kind, bucket_cap_mb=mb, gradient_as_bucket_view=True, **more)
        return train(r, model, inputs)

    return build


add("a-control", bucket("transformer", 25), steps=5)
add("b-control", bucket("mlp", 40), annotated=False)
add("a-huge-bucket", bucket("transformer", 20000), cause="no-compute-overlap", control="a-control")
add("b-huge-bucket", bucket("mlp", 20000), cause="no-compute-overlap", control="b-control", annotated=False)


def narrow(mb):
    """Many small layers, whose gradients are tiny."""

    def build(r):
        s = size(r, width=512, layers=60)
        model = ddp(r, models.thin(s["width"], s["layers"]), bucket_cap_mb=mb)
        x = torch.randn(65536 if r.cuda else 64, s["width"], device=r.device)
        return train(r, model, lambda n: x, optimizer=torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True))

    return build


def each_parameter(coalesced):
    """Averages gradients by hand after backward: one call per parameter, or one for all."""

    def build(r):
        s = size(r, width=1024, layers=40)
        model = models.thin(s["width"], s["layers"]).to(r.device)
        x = torch.randn(32768 if r.cuda else 64, s["width"], device=r.device)

        def average(n, model, loss):
            grads = [p.grad for p in model.parameters()]
            if coalesced:
                flat = torch._utils._flatten_dense_tensors(grads)
                dist.all_reduce(flat)
                for grad, whole in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
                    grad.copy_(whole)
            else:
                for grad in grads:
                    dist.all_reduce(grad)

        return train(r, model, lambda n: x, after=average)

    return build


add("a-tiny-bucket-control", narrow(25))
add("a-tiny-bucket", narrow(0.001), cause="small-messages", control="a-tiny-bucket-control")
add("b-each-parameter-control", each_parameter(True), cause="none", also=("no-compute-overlap",))
add("b-each-parameter", each_parameter(False), cause="small-messages", control="b-each-parameter-control")

# --- input


class Slow(torch.utils.data.Dataset):
    """Items that load slowly."""

    def __init__(self, seconds, shape, busy):
        self.seconds, self.shape, self.busy = seconds, shape, busy

    def __len__(self):
        return 100000

    def __getitem__(self, at):
        end = time.monotonic() + self.seconds
        x = torch.empty(self.shape)
        if self.busy:
            while time.monotonic() < end:
                x[0].normal_()
        else:
            time.sleep(self.seconds)
        return x


def loaded(seconds, workers, busy=False):
    def build(r):
        s = size(r, width=2048, layers=6, tokens=12288, length=512)
        model = ddp(r, models.transformer(s["width"], s["layers"]))
        n = max(1, s["tokens"] // s["length"])
        loader = torch.utils.data.DataLoader(
            Slow(seconds / n, (s["length"], 8), busy), batch_size=n, num_workers=workers, pin_memory=r.cuda,
            prefetch_factor=8 if workers else None, multiprocessing_context="fork" if workers else None)
        batches = iter(loader)
        r.keep.append(batches)
        wide = s["width"] // 8
        return train(r, model, lambda n: next(batches).to(r.device, non_blocking=True).repeat(1, 1, wide))

    return build


add("a-loader", loaded(0.06, 0), cause="data-loading-bound", control="a-loader-control")
add("a-loader-control", loaded(0.06, 6))


@plant("b-reader", cause="data-loading-bound", control="b-control")
def reader(r, seconds=0.05):
    """Without a DataLoader: the program reads and parses data itself."""
    model, inputs = plain(r, "mlp", bucket_cap_mb=40)

    def read_batch(n):
        with torch.profiler.record_function("read_batch"):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                sorted(range(2000))
        return inputs(n)

    return train(r, model, read_batch)


# --- synchronisation


def logged(how):
    """Logs the norm of each gradient."""

    def build(r):
        model, inputs = plain(r, "transformer")

        def log(n, model, loss):
            norms = [p.grad.norm() for p in model.parameters()]
            r.log = [norm.item() for norm in norms] if how == "late" else None
            if how == "none":
                r.log = torch.stack(norms)

        return train(r, model, inputs, after=log)

    return build


class Watched(nn.Module):
    """Reads the output of every layer, like a NaN check."""

    def __init__(self, inner, look):
        super().__init__()
        self.inner, self.look = inner, look

    def forward(self, x):
        for layer in self.inner:
            x = layer(x)
            if self.look and torch.isnan(x).any().item():
                raise ValueError("nan")
        return x


def watched(look):
    def build(r):
        s = size(r, width=2048, layers=12, tokens=8192, length=512)
        model = ddp(r, Watched(models.transformer(s["width"], s["layers"]), look))
        x = batch(r, s["tokens"], s["width"], s["length"])
        return train(r, model, lambda n: x)

    return build


add("a-item", watched(True), cause="sync-stalls", control="a-item-control")
add("a-item-control", watched(False), cause="none", also=("host-bound",))


def synchronised(every):
    def build(r):
        model, inputs = plain(r, "mlp", bucket_cap_mb=40)
        small = models.thin(256, 40).to(r.device)
        y = torch.randn(1024, 256, device=r.device)

        def after(n, model, loss):
            for _ in range(3):
                small(y)
                if every and r.cuda:
                    torch.cuda.synchronize()

        return train(r, model, inputs, after=after, before=lambda n: r.cuda and every and torch.cuda.synchronize())

    return build


add("b-synchronize", synchronised(True), cause="sync-stalls", control="b-synchronize-control", stacks=True)
add("b-synchronize-control", synchronised(False))
add("a-blocking-control", bucket("transformer", 25))


@plant("b-blocking-control")
def narrow_batch(r):
    s = size(r, width=1024, layers=16, tokens=4096, length=512)
    model = ddp(r, models.transformer(s["width"], s["layers"]))
    x = batch(r, s["tokens"], s["width"], s["length"])
    return train(r, model, lambda n: x)


# --- memory and copies


def emptied(empty, n_free):
    def build(r):
        model, inputs = plain(r, "transformer" if n_free == 1 else "mlp")

        def after(n, model, loss):
            if empty and r.cuda:
                torch.cuda.empty_cache()

        return train(r, model, inputs, after=after, before=(lambda n: after(n, None, None)) if n_free > 1 else None)

    return build


add("a-empty-cache", emptied(True, 1), cause="allocator-stalls", control="a-control")
add("b-empty-cache", emptied(True, 2), cause="allocator-stalls", control="b-control", annotated=False)


def copied(pinned, mb):
    def build(r):
        model, inputs = plain(r, "transformer")
        host = torch.randn(mb << 18 if r.cuda else 1024)
        host = host.pin_memory() if pinned and r.cuda else host
        side = torch.cuda.Stream() if r.cuda else None

        def load(n):
            if pinned and r.cuda:
                with torch.cuda.stream(side):
                    r.extra = host.to(r.device, non_blocking=True)
            else:
                r.extra = host.to(r.device)
            return inputs(n)

        return train(r, model, load)

    return build


add("a-pageable", copied(False, 256), cause="transfer-bound", control="a-pageable-control")
add("a-pageable-control", copied(True, 256))


def offloaded(bring):
    """Keeps the optimizer state on the host: copies gradients there and weights back."""

    def build(r):
        model, inputs = plain(r, "mlp", bucket_cap_mb=40)
        weights = [p for p in model.parameters() if p.dim() > 1]

        def after(n, model, loss):
            for p in weights[:bring]:
                host = p.grad.cpu()
                p.grad.copy_(host)

        return train(r, model, inputs, after=after)

    return build


add("b-offload", offloaded(2), cause="transfer-bound", also=("sync-stalls",), control="b-control")

# --- the host


def unfused(fused):
    def build(r):
        s = size(r, width=256, layers=60)
        model = ddp(r, models.thin(s["width"], s["layers"]))
        x = torch.randn(4096, s["width"], device=r.device)
        options = {"fused": True} if fused and r.cuda else {"foreach": False}
        return train(r, model, lambda n: x, optimizer=torch.optim.Adam(model.parameters(), lr=1e-4, **options))

    return build


add("a-host-bound", unfused(False), cause="host-bound", control="a-host-bound-control")
add("a-host-bound-control", unfused(True), cause="host-bound", also=("none",))


@plant("b-host-bound", cause="host-bound")
def chatty(r):
    """Hundreds of small Python operations between the layers."""
    s = size(r, width=1024, layers=6, tokens=1024, length=128)
    model = ddp(r, models.transformer(s["width"], s["layers"]))
    x = batch(r, s["tokens"], s["width"], s["length"])
    scales = torch.ones(64, device=r.device)

    def prepare(n):
        y = x
        for at in range(400):
            y = y * scales[at % 64] + 0.0
        return y

    return train(r, model, prepare)


# --- one rank is late


def late_on_host(rank, seconds, where):
    def build(r):
        model, inputs = plain(r, "transformer" if where == "before" else "mlp")

        def wait(n, *_):
            if r.rank == rank and seconds:
                if where == "before":
                    time.sleep(seconds)
                else:
                    end = time.monotonic() + seconds
                    while time.monotonic() < end:
                        sorted(range(1000))

        return train(r, model, inputs, **{where: wait})

    return build


add("a-host-straggler", late_on_host(1, 0.06, "before"), cause="straggler", culprit=(1,), control="a-control")
add("b-host-straggler", late_on_host(0, 0.012, "after"), cause="straggler", culprit=(0,), control="b-control", annotated=False)

HOG = """
import sys, torch
a = torch.randn(8192, 8192, device=f"cuda:{sys.argv[1]}", dtype=torch.bfloat16)
print("on", flush=True)
while True:
    for _ in range(20): a @ a
    torch.cuda.synchronize()
"""


def neighbour(rank, kind):
    """Another program uses the GPU of one rank."""

    def build(r):
        model, inputs = plain(r, kind)
        if r.rank == rank and r.cuda:
            hog = subprocess.Popen([sys.executable, "-c", HOG, str(r.device.index)], stdout=subprocess.PIPE)
            hog.stdout.readline()
            r.at_end.append(lambda: (hog.kill(), hog.wait()))
        return train(r, model, inputs)

    return build


add("a-slow-gpu", neighbour(1, "transformer"), cause="straggler", culprit=(1,), control="a-control")
add("b-slow-gpu", neighbour(0, "mlp"), cause="straggler", culprit=(0,), control="b-control")


@plant("b-more-work", cause="straggler", also=("load-imbalance",), culprit=(1,), control="b-control")
def more_work(r):
    """One rank does extra work: an evaluation in every step."""
    model, inputs = plain(r, "mlp")
    a = torch.randn(*([8192, 8192] if r.cuda else [64, 64]), device=r.device)

    def extra(n):
        if r.rank == 1:
            for _ in range(3):
                a.bfloat16() @ a.bfloat16()

    return train(r, model, inputs, before=extra)


# --- communication


def by_hand(separate, pieces=0):
    """Averages gradients in backward hooks: in the compute stream, or in a separate one."""

    def build(r):
        s = size(r, width=2048, layers=6, tokens=12288, length=512)
        model = models.transformer(s["width"], s["layers"]).to(r.device)
        x = batch(r, s["tokens"], s["width"], s["length"])
        works = []

        def hook(p):
            for part in p.grad.view(-1).split(pieces or p.grad.numel()):
                work = dist.all_reduce(part, async_op=separate)
                if separate:
                    works.append(work)

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(hook)

        def wait(n, *_):
            for work in works:
                work.wait()
            works.clear()

        return train(r, model, lambda n: x, after=wait)

    return build


add("a-same-stream", by_hand(False), cause="no-compute-overlap", control="a-same-stream-control")
add("a-same-stream-control", by_hand(True))
add("a-pieces", by_hand(True, 1 << 18), cause="small-messages", also=("host-bound",), control="a-same-stream-control", steps=2)


def sharded(prefetch, kind):
    def build(r):
        from torch.distributed.fsdp import fully_shard

        if kind == "transformer":
            s = size(r, width=2048, layers=10, tokens=16384, length=512)
            model, x = models.transformer(s["width"], s["layers"]), batch(r, s["tokens"], s["width"], s["length"])
        else:
            s = size(r, width=8192, layers=8, tokens=2048, length=512)
            model, x = models.mlp(s["width"], s["layers"]), batch(r, s["tokens"], s["width"], s["length"]).flatten(0, 1)
        model = model.to(r.device)
        layers = [layer for layer in model if any(True for _ in layer.parameters())]
        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
        if not prefetch:
            for layer in [*layers, model]:
                # The all-gather of a layer is in the stream of the preceding work, and nothing prefetches it.
                layer._set_unshard_async_op(True)
                layer.set_modules_to_backward_prefetch([layer])
        return train(r, model, lambda n: x)

    return build


add("a-fsdp", sharded(False, "transformer"), cause="no-compute-overlap", control="a-fsdp-control")
add("a-fsdp-control", sharded(True, "transformer"))
add("b-fsdp", sharded(False, "mlp"), cause="no-compute-overlap", control="b-fsdp-control")
add("b-fsdp-control", sharded(True, "mlp"), also=("no-compute-overlap",))

# --- unequal work


def lengths(unequal, kind="random"):
    def build(r):
        s = size(r, width=2048, layers=6, tokens=12288, length=512)
        model = ddp(r, models.transformer(s["width"], s["layers"]))
        rng = torch.Generator().manual_seed(5)
        table = torch.randint(1, 16, (64, r.world), generator=rng)
        if kind == "skewed":
            table = torch.tensor([[4] * (r.world - 1) + [14]] * 64)

        def inputs(n):
            length = int(table[n % 64][r.rank]) * (64 if r.cuda else 4) if unequal else (512 if r.cuda else 32)
            return torch.randn(24 if r.cuda else 2, length, s["width"], device=r.device)

        return train(r, model, inputs)

    return build


add("a-lengths", lengths(True), cause="load-imbalance", control="a-lengths-control", steps=6)
add("a-lengths-control", lengths(False))
add("b-lengths", lengths(True, "skewed"), cause="load-imbalance", also=("straggler",), control="a-lengths-control", annotated=False)


def experts(share, layers):
    def build(r):
        s = size(r, width=2048, layers=layers, tokens=8192, length=512)
        rank, world = r.rank, r.world
        model = nn.Sequential(*[models.Experts(s["width"], world, rank, share) for _ in range(s["layers"])]).to(r.device)
        x = batch(r, s["tokens"], s["width"], s["length"])
        return train(r, model, lambda n: x)

    return build


add("a-experts", experts(0.85, 4), cause="load-imbalance", also=("straggler",), control="a-experts-control")
add("a-experts-control", experts(0.5, 4), also=("no-compute-overlap",))
add("b-experts", experts(0.7, 8), cause="load-imbalance", also=("straggler",))


def piped(n_micro, unequal=False):
    def build(r):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        s = size(r, width=2048, layers=4, tokens=8192, length=512)
        s["tokens"] = 16 * s["length"]
        layers = s["layers"] * (3 if unequal and r.rank == r.world - 1 else 1)
        model = models.transformer(s["width"], layers).to(r.device).to(torch.bfloat16 if r.cuda else torch.float32)
        stage = PipelineStage(model, r.rank, r.world, r.device)
        last = r.rank == r.world - 1
        schedule = ScheduleGPipe(stage, n_micro, loss_fn=lambda out, target: out.float().square().mean())
        x = batch(r, s["tokens"], s["width"], s["length"]).to(next(model.parameters()).dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

        def step(n):
            if r.rank == 0:
                schedule.step(x)
            elif last:
                schedule.step(target=x, losses=[])
            else:
                schedule.step()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


add("a-pipeline", piped(2), cause="pipeline-bubble", control="a-pipeline-control")
add("a-pipeline-control", piped(16), also=("pipeline-bubble", "host-bound"))
add("b-pipeline", piped(8, unequal=True), cause="pipeline-bubble", also=("load-imbalance", "straggler"))

# --- different processes: their settings are read once, at startup. `record.py` starts them accordingly.

SETTINGS = {
    "a-blocking": {"CUDA_LAUNCH_BLOCKING": "1"},
    "b-blocking": {"CUDA_LAUNCH_BLOCKING": "1"},
    "a-no-p2p": {"NCCL_P2P_DISABLE": "1"},
    "b-no-p2p": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
}
add("a-blocking", bucket("transformer", 25), cause="sync-stalls", control="a-blocking-control")
add("b-blocking", narrow_batch, cause="sync-stalls", control="b-blocking-control")
SLOW = ("slow-link", "wrong-transport", "nccl-env-misconfigured")
add("a-no-p2p", bucket("transformer", 25), cause="bandwidth-below-expected", also=SLOW, control="a-control")
add("b-no-p2p", bucket("mlp", 40), cause="bandwidth-below-expected", also=SLOW, control="b-control")


def settings_of(name):
    return SETTINGS.get(name, {})


def world():
    return int(os.environ.get("WORLD_SIZE", "1"))
