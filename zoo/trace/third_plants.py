"""A third set of plants: other architectures (diffusion, encoder and decoder, speech, recommender, experts, GAN), and other faults.

It was written without a look at the analysis, and before it was recorded. Rows are as in `plants.py`. Some jobs use transformers,
accelerate or Lightning Fabric as their users do; models are built from a configuration, on the GPU.

`THIRD` lists the rows in the order to run; those of `SETTINGS_OF` run in processes of their own.
"""

import contextlib
import json
import os
import random
import re
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from other_plants import Swap, add, on_device, parallel
from plants import SETTINGS, SLOW


def pick(r, gpu, cpu):
    """A size; without a GPU a small one, to test the program."""
    return gpu if r.cuda else cpu


def amp(r):
    return torch.autocast(r.device.type, dtype=torch.bfloat16)


def needed(name):
    """A library that only some plants use."""
    try:
        return __import__(name)
    except ImportError as error:
        raise RuntimeError(f"this plant needs {name}, which is not installed") from error


def local_rank(r):
    """accelerate and Lightning read it; torchrun sets it."""
    os.environ.setdefault("LOCAL_RANK", str(r.device.index or 0 if r.cuda else r.rank))


def adamw(r, parameters, **more):
    return torch.optim.AdamW(parameters, lr=1e-5, fused=r.cuda, **more)


def nothing(*_):
    return None


def step_of(r, model, loss_of, optimizer=None, before=nothing, after=nothing, end=nothing):
    """One step: `loss_of(n)`, backward, optimizer. The others are hooks: before the forward part, after backward, at the end."""
    optimizer = optimizer or adamw(r, model.parameters())

    def step(n):
        before(n)
        with amp(r):
            loss = loss_of(n)
        loss.backward()
        after(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end(loss)

    return step


# --- a diffusion transformer


class DiTBlock(nn.Module):
    """A block whose norms are modulated by the time step and the class."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, elementwise_affine=False), nn.LayerNorm(dim, elementwise_affine=False)
        self.modulate = nn.Linear(dim, 6 * dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulate(functional.silu(c)).unsqueeze(1).chunk(6, -1)
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x) * (1 + scale1) + shift1).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + gate1 * self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + gate2 * self.fc2(functional.gelu(self.fc1(self.norm2(x) * (1 + scale2) + shift2), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, dim, depth, side=32, patch=2, channels=4):
        super().__init__()
        self.patchify = nn.Conv2d(channels, dim, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (side // patch) ** 2, dim))
        self.time = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.label = nn.Embedding(1000, dim)
        self.blocks = nn.ModuleList([DiTBlock(dim, max(1, dim // 128)) for _ in range(depth)])
        self.last = nn.Linear(dim, patch * patch * channels)
        self.patch = patch

    def forward(self, x, t, y):
        waves = torch.exp(-torch.arange(128, device=x.device) / 16)
        angle = t[:, None] * waves[None]
        c = self.time(torch.cat([angle.cos(), angle.sin()], -1)) + self.label(y)
        b, _, height, width = x.shape
        p = self.patch
        h = self.patchify(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            h = block(h, c)
        h = self.last(h).view(b, height // p, width // p, p, p, -1)
        return h.permute(0, 5, 1, 3, 2, 4).reshape(b, -1, height, width)


def dit(r, dim=2560, depth=6):
    return on_device(r, lambda: DiT(pick(r, dim, 64), pick(r, depth, 2), side=pick(r, 32, 8)))


def denoise(r, model, n_batch=16):
    """The loss of a batch: the noise is to be predicted."""
    n, side = pick(r, n_batch, 2), pick(r, 32, 8)
    latents = torch.randn(n, 4, side, side, device=r.device)
    labels = torch.randint(0, 1000, (n,), device=r.device)

    def loss_of(n):
        noise, t = torch.randn_like(latents), torch.rand(len(latents), device=r.device)
        share = t.view(-1, 1, 1, 1)
        predicted = model(latents * (1 - share) + noise * share, t * 1000, labels)
        return (predicted.float() - noise).square().mean()

    return loss_of


def diffusion(hooks=None, **options):
    def build(r):
        model = parallel(r, dit(r), gradient_as_bucket_view=True, **options)
        return step_of(r, model, denoise(r, model), **(hooks(r, model) if hooks else {}))

    return build


def reduces_loss(r, model):
    """Averages the loss over all ranks in each step, for the log; nobody reads it here."""

    def after(loss):
        r.log = loss.detach().clone()
        dist.all_reduce(r.log)

    return {"after": after}


add("e-dit", diffusion())
add("e-loss-reduced", diffusion(reduces_loss))


def zero_redundancy(r):
    """Each rank updates its share of the weights, then broadcasts them: after the step, when nothing else is left to do."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = parallel(r, dit(r), gradient_as_bucket_view=True)
    more = {"fused": True} if r.cuda else {}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-5, **more)
    return step_of(r, model, denoise(r, model), optimizer)


add("e-zero", zero_redundancy, cause="no-compute-overlap", control="e-dit")


def few_channels(r):
    """NCCL may use two blocks of threads only, "to leave the GPU to the matrix products"."""
    options = None
    if r.cuda:
        options = dist.ProcessGroupNCCL.Options()
        options.config.max_ctas = 2
    group = dist.new_group(pg_options=options)
    r.at_end.append(lambda: dist.destroy_process_group(group))
    return diffusion(process_group=group)(r)


add("e-few-channels", few_channels, cause="bandwidth-below-expected", also=SLOW, control="e-dit", steps=3)


def telemetry(rank, held, free):
    """A thread of one rank serialises statistics again and again; meanwhile Python does nothing else there."""

    def hooks(r, model):
        def end(loss):
            r.log = loss.item()

        if r.rank != rank:
            return {"end": end}
        row = {str(at): list(range(50)) for at in range(100)}
        json.dumps(row)
        begin = time.monotonic()
        for _ in range(5):
            json.dumps(row)
        n_rows = max(1, int(held * 5 / (time.monotonic() - begin)))
        rows, stop = [row] * n_rows, threading.Event()

        def report():
            while not stop.wait(free):
                json.dumps(rows)

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        r.at_end.append(lambda: (stop.set(), thread.join()))
        return {"end": end}

    return hooks


add("e-gil-thread", diffusion(telemetry(0, 0.025, 0.006)), cause="straggler", also=("host-bound",), culprit=(0,), control="e-dit")


def moments_on_host(r):
    """The moments of some weights lie in ordinary host memory: there and back in each step."""
    model = parallel(r, dit(r), gradient_as_bucket_view=True)
    away = [block.out.weight for block in model.module.blocks[:2]]
    ours = {id(p) for p in away}
    optimizer = adamw(r, [p for p in model.parameters() if id(p) not in ours])
    moments = [(torch.zeros(p.shape), torch.zeros(p.shape)) for p in away]

    def after(loss):
        with torch.no_grad():
            for p, (first, second) in zip(away, moments):
                m, v = first.to(r.device), second.to(r.device)
                m.lerp_(p.grad, 0.1)
                v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-5)
                first.copy_(m)
                second.copy_(v)
                p.grad = None

    return step_of(r, model, denoise(r, model), optimizer, after=after)


add("e-moments-on-host", moments_on_host, cause="transfer-bound", also=("sync-stalls",), control="e-dit")


def anomalies(r):
    """detect_anomaly was left on after a search for NaNs."""
    model = parallel(r, dit(r), gradient_as_bucket_view=True)
    step = step_of(r, model, denoise(r, model))

    def watched(n):
        with torch.autograd.detect_anomaly():
            step(n)

    return watched


add("e-anomaly", anomalies, cause="sync-stalls", also=("host-bound",), control="e-dit", steps=3)


def fabric_metrics(r, n_metrics=96):
    """Lightning Fabric; each metric is averaged over all ranks by a call of its own."""
    local_rank(r)
    fabric_of = needed("lightning_fabric")
    from lightning_fabric.plugins.environments import LightningEnvironment
    from lightning_fabric.strategies import DDPStrategy

    strategy = DDPStrategy(gradient_as_bucket_view=True, cluster_environment=LightningEnvironment())
    fabric = fabric_of.Fabric(accelerator="cuda" if r.cuda else "cpu", devices=r.world, strategy=strategy, precision="bf16-mixed")
    fabric.launch()
    model = dit(r)
    model, optimizer = fabric.setup(model, adamw(r, model.parameters()))
    loss_of = denoise(r, model)
    n_metrics = pick(r, n_metrics, 6)

    def step(n):
        loss = loss_of(n)
        fabric.backward(loss)
        values = [p.grad.detach().flatten()[:4096].norm() for p in list(model.parameters())[:n_metrics]]
        values += [loss.detach().clone() for _ in range(n_metrics - len(values))]
        r.log = [fabric.all_reduce(value, reduce_op="mean") for value in values]
        optimizer.step()
        optimizer.zero_grad()

    return step


add("e-fabric-metrics", fabric_metrics, cause="small-messages", also=("sync-stalls",), control="e-loss-reduced")

# --- FSDP2


def sharded(each_block):
    """The blocks are sharded one by one, or the whole model as one unit."""

    def build(r):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        model = dit(r, dim=3072)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32) if r.cuda else MixedPrecisionPolicy()
        if each_block:
            for block in model.blocks:
                fully_shard(block, mp_policy=policy, reshard_after_forward=True)
        fully_shard(model, mp_policy=policy)
        return step_of(r, model, denoise(r, model, 12))

    return build


add("e-fsdp", sharded(True))
add("e-fsdp-one-unit", sharded(False), cause="no-compute-overlap", control="e-fsdp")

# --- tensor parallelism


class Wide(nn.Module):
    """A block whose linear layers can be split: heads and hidden units over the ranks."""

    def __init__(self, dim, head):
        super().__init__()
        self.head = head
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (layer(y).view(b, t, -1, self.head).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def tensor_parallel(is_split):
    """Layers split over both ranks, or the same model and as many sequences in all with DDP: the model is small enough for one GPU."""

    def build(r):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        dim, depth, n, length = (1024, 4, 64, 1024) if r.cuda else (64, 2, 4, 16)
        model = on_device(r, lambda: nn.Sequential(*[Wide(dim, pick(r, 128, 16)) for _ in range(depth)]))
        model = model.to(pick(r, torch.bfloat16, torch.float32))
        if is_split:
            mesh = init_device_mesh(r.device.type, (r.world,))
            plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")} | {name: RowwiseParallel() for name in ("out", "down")}
            for block in model:
                parallelize_module(block, mesh, plan)
        else:
            model, n = parallel(r, model), n // r.world
        x = torch.randn(n, length, dim, device=r.device, dtype=pick(r, torch.bfloat16, torch.float32))
        # One optimizer does not take both kinds of weights in one call.
        split = [p for p in model.parameters() if isinstance(p, DTensor)]
        whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
        optimizers = [torch.optim.SGD(some, lr=1e-5, foreach=True) for some in (split, whole) if some]

        def step(n):
            model(x).float().square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

        return step

    return build


add("e-tensor-parallel", tensor_parallel(True), cause="no-compute-overlap", control="e-tensor-parallel-control", annotated=False)
add("e-tensor-parallel-control", tensor_parallel(False), annotated=False)

# --- gradient accumulation with accelerate


def accumulated(is_told, n_micro=6):
    """A Llama with few tokens a micro-batch. Without `accumulate` each of them averages all gradients."""

    def build(r):
        local_rank(r)
        transformers = needed("transformers")
        accelerate = needed("accelerate")
        reset_accelerate()
        r.at_end.append(reset_accelerate)
        dim, length = pick(r, 4096, 64), pick(r, 512, 8)
        config = transformers.LlamaConfig(
            hidden_size=dim, intermediate_size=pick(r, 11008, 128), num_hidden_layers=pick(r, 3, 2), num_attention_heads=pick(r, 32, 2),
            num_key_value_heads=pick(r, 8, 1), vocab_size=pick(r, 8192, 64), use_cache=False)
        accelerator = accelerate.Accelerator(
            mixed_precision="bf16", cpu=not r.cuda, gradient_accumulation_steps=n_micro if is_told else 1,
            kwargs_handlers=[accelerate.DistributedDataParallelKwargs(gradient_as_bucket_view=True)])
        model = on_device(r, lambda: transformers.LlamaForCausalLM(config))
        model, optimizer = accelerator.prepare(model, adamw(r, model.parameters()))
        parts = [torch.randint(0, config.vocab_size, (1, length), device=r.device) for _ in range(n_micro)]

        def step(n):
            for at, part in enumerate(parts):
                with accelerator.accumulate(model) if is_told else contextlib.nullcontext():
                    loss = model(input_ids=part, labels=part).loss
                    accelerator.backward(loss if is_told else loss / n_micro)
                    if is_told or at == n_micro - 1:
                        optimizer.step()
                        optimizer.zero_grad()

        return step

    return build


def reset_accelerate():
    """Its state outlives a job; the next one may want other settings."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


add("e-accumulate", accumulated(False), cause="no-compute-overlap", control="e-accumulate-control", steps=3)
add("e-accumulate-control", accumulated(True), steps=3)

# --- T5


def t5(r):
    transformers = needed("transformers")
    config = transformers.T5Config(
        d_model=pick(r, 512, 32), d_kv=pick(r, 64, 16), num_heads=pick(r, 8, 2), d_ff=pick(r, 2048, 64), num_layers=pick(r, 8, 2),
        vocab_size=pick(r, 8192, 64), use_cache=False, decoder_start_token_id=0)
    return on_device(r, lambda: transformers.T5ForConditionalGeneration(config))


def texts(r, n=40, source=512, target=128):
    n, source, target = (n, source, target) if r.cuda else (2, max(8, source // 32), 8)
    top = pick(r, 8192, 64)
    return {"input_ids": torch.randint(1, top, (n, source), device=r.device), "labels": torch.randint(1, top, (n, target), device=r.device)}


def translation(hooks=None, lengths=None):
    """`lengths`: of the source texts of each rank."""

    def build(r):
        model = parallel(r, t5(r), gradient_as_bucket_view=True)
        fixed = texts(r, source=lengths[r.rank] if lengths else 512)

        def loss_of(n):
            r.extra = model(**fixed)
            return r.extra.loss

        return step_of(r, model, loss_of, **(hooks(r, model) if hooks else {}))

    return build


def keeps_predictions(r, model):
    """The logits of each training batch go to the host, for a metric at the end of the epoch."""

    def after(loss):
        r.log = r.extra.logits.detach().cpu()

    return {"after": after}


class Lion(torch.optim.Optimizer):
    """Lion with a clipped norm and a moving average of each weight, written as a loop over weights."""

    def __init__(self, parameters, lr=1e-5):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"], state["average"] = torch.zeros_like(p), p.clone()
                scale = (1.0 / (p.grad.norm() + 1e-6)).clamp(max=1.0)
                grad = p.grad * scale
                update = state["momentum"].lerp(grad, 0.1).sign_()
                p.mul_(1 - group["lr"] * 0.01)
                p.add_(update, alpha=-group["lr"])
                state["momentum"].lerp_(grad, 0.01)
                state["average"].lerp_(p, 0.001)


def lion(r, model):
    """The progress bar shows the loss, then the loop over weights begins."""

    def after(loss):
        r.log = loss.item()

    return {"optimizer": Lion(model.parameters()), "after": after}


def broadcasts_each(r, model):
    """Each rank updates every other weight, and broadcasts each of them by a call of its own."""
    shares = [list(model.parameters())[rank::r.world] for rank in range(r.world)]
    optimizer = adamw(r, shares[r.rank])

    def end(loss):
        for rank, share in enumerate(shares):
            for p in share:
                dist.broadcast(p.data, rank)
                p.grad = None

    return {"optimizer": optimizer, "end": end}


add("e-t5", translation())
add("e-long-sequences", translation(lengths=(320, 704)), cause="load-imbalance", also=("straggler",), culprit=(1,), control="e-t5")
add("e-logits-to-host", translation(keeps_predictions), cause="transfer-bound", also=("sync-stalls",), control="e-t5")
add("e-lion-loop", translation(lion), cause="host-bound", also=("sync-stalls",), control="e-t5", steps=3)
add("e-broadcast-each", translation(broadcasts_each), cause="small-messages", also=("no-compute-overlap",), control="e-t5", steps=3)


class Words(torch.utils.data.Dataset):
    """Texts as they were written."""

    def __init__(self, n_words):
        pieces = ["ba", "con", "der", "ex", "fi", "gra", "hu", "in", "jo", "ken", "lar", "mi", "nor", "per", "qua", "ser", "tion", "un"]
        chance = random.Random(5)
        self.texts = [" ".join("".join(chance.choices(pieces, k=chance.randint(1, 4))) for _ in range(n_words)) for _ in range(64)]

    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        return self.texts[at % 64]


class Tokeniser:
    """Byte pairs in plain Python, merged in the order of their ranks."""

    def __init__(self, top):
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.ranks = {a + b: at for at, (a, b) in enumerate((a, b) for a in letters for b in letters)}
        self.top = top

    def word(self, word):
        parts = list(word)
        while len(parts) > 1:
            ranked = [(self.ranks.get(a + b, 1 << 30), at) for at, (a, b) in enumerate(zip(parts, parts[1:]))]
            rank, at = min(ranked)
            if rank == 1 << 30:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [hash(part) % (self.top - 1) + 1 for part in parts]

    def __call__(self, text, length):
        ids = [token for word in re.findall(r"\w+", text) for token in self.word(word)][:length]
        return ids + [0] * (length - len(ids))


def tokenised(r):
    """The collate function tokenises, in the process that trains."""
    model = parallel(r, t5(r), gradient_as_bucket_view=True)
    tokenise, n, source, target = Tokeniser(pick(r, 8192, 64)), pick(r, 40, 2), pick(r, 512, 16), pick(r, 128, 8)

    def collate(rows):
        ids = torch.tensor([tokenise(row, source) for row in rows])
        return {"input_ids": ids, "labels": ids[:, :target].clone()}

    loader = iter(torch.utils.data.DataLoader(Words(140), batch_size=n, collate_fn=collate, pin_memory=r.cuda))
    r.keep.append(loader)

    def loss_of(n):
        batch = {key: value.to(r.device, non_blocking=True) for key, value in next(loader).items()}
        return model(**batch).loss

    return step_of(r, model, loss_of)


add("e-tokenise", tokenised, cause="data-loading-bound", also=("host-bound",), control="e-t5")


def trainer_empties(r):
    """The Hugging Face Trainer with torch_empty_cache_steps=1, a setting from a thread about running out of memory."""
    local_rank(r)
    transformers = needed("transformers")
    reset_accelerate()
    r.at_end.append(reset_accelerate)
    folder = tempfile.TemporaryDirectory()
    r.keep.append(folder)
    arguments = transformers.TrainingArguments(
        output_dir=folder.name, bf16=r.cuda, use_cpu=not r.cuda, torch_empty_cache_steps=1, report_to="none", learning_rate=1e-5)
    trainer = transformers.Trainer(model=t5(r), args=arguments)
    trainer.create_optimizer()
    model, optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    trainer.current_gradient_accumulation_steps = 1
    fixed = texts(r)

    def step(n):
        r.log = trainer.training_step(model, dict(fixed))
        optimizer.step()
        model.zero_grad()

    return step


add("e-trainer-empties", trainer_empties, cause="allocator-stalls", control="e-t5")

# --- speech


class Conformer(nn.Module):
    """A block of speech models: half a feed-forward part, attention, convolution, another half."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.first = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.before, self.wide = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim)
        self.depthwise, self.narrow = nn.Conv1d(dim, dim, 15, padding=7, groups=dim), nn.Linear(dim, dim)
        self.second = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        x = x + 0.5 * self.first(x)
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        y = self.depthwise(functional.glu(self.wide(self.before(x))).transpose(1, 2)).transpose(1, 2)
        x = x + self.narrow(functional.silu(y))
        return x + 0.5 * self.second(x)


class Recogniser(nn.Module):
    """Activations of the blocks are computed again in the backward part."""

    def __init__(self, dim, depth, channels, n_mels, n_units):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(1, channels, 3, 2, 1), nn.ReLU(), nn.Conv2d(channels, channels, 3, 2, 1), nn.ReLU())
        self.enter = nn.Linear(channels * (n_mels // 4), dim)
        self.blocks = nn.ModuleList([Conformer(dim, max(1, dim // 128)) for _ in range(depth)])
        self.head = nn.Linear(dim, n_units)

    def forward(self, spectra):
        from torch.utils.checkpoint import checkpoint

        h = self.convs(spectra.unsqueeze(1))
        h = self.enter(h.transpose(1, 2).flatten(2))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)
        return self.head(h)


class Utterances(torch.utils.data.Dataset):
    """Recordings that are resampled and turned into spectra: `seconds` of a processor's time each."""

    def __init__(self, length, seconds, n_frames, n_mels):
        self.length, self.seconds, self.shape = length, seconds, (n_frames, n_mels)

    def __len__(self):
        return self.length

    def __getitem__(self, at):
        until = time.monotonic() + self.seconds
        wave = torch.ones(4000)
        while time.monotonic() < until:
            wave = torch.fft.irfft(torch.fft.rfft(wave) * 0.9)
        return torch.full(self.shape, float(wave[0]), dtype=torch.float16), torch.zeros(self.shape[0] // 4, dtype=torch.long)


def recogniser(r):
    make = lambda: Recogniser(pick(r, 1024, 64), pick(r, 8, 2), pick(r, 256, 8), pick(r, 80, 8), pick(r, 2048, 16))  # noqa: E731
    return parallel(r, on_device(r, make), gradient_as_bucket_view=True)


def endless(loader):
    """Epoch after epoch."""
    while True:
        yield from loader


def speech(seconds=0.15, workers=8, slow=(), masks=nothing, n_batches=10_000):
    """`seconds` of work for a batch; those of single ranks in `slow`."""

    def build(r):
        n, frames, mels = pick(r, (48, 1000, 80), (2, 32, 8))
        model = recogniser(r)
        mine = dict(slow).get(r.rank, seconds)
        loader = torch.utils.data.DataLoader(
            Utterances(n_batches * n, mine / n, frames, mels), batch_size=n, num_workers=pick(r, workers, min(workers, 2)),
            pin_memory=r.cuda, prefetch_factor=2, persistent_workers=n_batches > 100, multiprocessing_context="fork")
        batches = endless(loader)
        r.keep += [loader, batches]
        lengths = torch.randint(frames // 2, frames, (n,), device=r.device)

        def loss_of(n):
            spectra, units = next(batches)
            spectra = spectra.to(r.device, non_blocking=True).float()
            units = units.to(r.device, non_blocking=True)
            masks(spectra, lengths)
            return functional.cross_entropy(model(spectra).flatten(0, 1), units.flatten())

        return step_of(r, model, loss_of)

    return build


def mask_time(spectrum, length, share=0.05):
    """Blanks a part of a recording, at most `share` of it. `length` lies on the GPU."""
    width = random.randint(1, max(1, int(share * length)))
    begin = random.randint(0, max(0, int(length) - width))
    spectrum[begin : begin + width] = 0


def augments(spectra, lengths):
    """Masks recording by recording: four bands of time and two of frequency."""
    n_mels = spectra.shape[2]
    for spectrum, length in zip(spectra, lengths):
        for _ in range(4):
            mask_time(spectrum, length)
        for _ in range(2):
            low = random.randint(0, n_mels - 2)
            spectrum[:, low : low + n_mels // 4] = 0


add("e-speech", speech())
add("e-few-workers", speech(0.17, workers=2), cause="data-loading-bound", control="e-speech", steps=6)
add("e-slow-collate", speech(0.04, workers=2, slow={1: 0.19}.items()), cause="straggler", also=("data-loading-bound",), culprit=(1,),
    control="e-speech", steps=6)
add("e-new-workers", speech(0.06, workers=4, n_batches=3), cause="data-loading-bound", control="e-speech", steps=6)
add("e-specaugment", speech(masks=augments), cause="sync-stalls", also=("host-bound",), control="e-speech", stacks=True, steps=3)

# --- a recommender


def recommender(shares=(0.5, 0.5), each=False):
    """Features are looked up at the ranks that hold their tables (`shares` of them), then exchanged: all at once, or one by one."""

    def build(r):
        n_all, dim, n, pool, n_rows = (128, 32, 16384, 24, 20_000) if r.cuda else (8, 4, 16, 3, 50)
        counts = [int(n_all * share) for share in shares]
        mine = counts[r.rank]
        tables = on_device(r, lambda: nn.EmbeddingBag(mine * n_rows, dim, mode="sum"))
        wide = n_all * dim
        layers = lambda: nn.Sequential(  # noqa: E731
            nn.Linear(wide, 2 * wide), nn.ReLU(), nn.Linear(2 * wide, wide), nn.ReLU(), nn.Linear(wide, 1))
        top = parallel(r, on_device(r, layers), gradient_as_bucket_view=True)
        chosen = torch.randint(0, mine * n_rows, (r.world * n * mine, pool), device=r.device)
        clicks = torch.randint(0, 2, (n,), device=r.device).float()
        optimizers = [torch.optim.SGD(tables.parameters(), lr=1e-3, fused=r.cuda), adamw(r, top.parameters())]

        def exchanged(rows):
            if each:
                parts = [Swap.apply(rows[:, at].contiguous(), [n] * r.world, [n] * r.world) for at in range(mine)]
                return torch.stack(parts, 1).view(r.world, n, -1).transpose(0, 1).reshape(n, wide)
            got = Swap.apply(rows.reshape(-1, dim), [n * mine] * r.world, [n * count for count in counts])
            return torch.cat([part.view(n, -1) for part in got.split([n * count for count in counts])], 1)

        def step(at):
            rows = exchanged(tables(chosen).view(r.world * n, mine, dim))
            with amp(r):
                score = top(rows)
            functional.binary_cross_entropy_with_logits(score.float().flatten(), clicks).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        return step

    return build


add("e-tables", recommender())
add("e-table-each", recommender(each=True), cause="small-messages", also=("host-bound",), control="e-tables")
add("e-hot-tables", recommender((0.875, 0.125)), cause="load-imbalance", also=("straggler",), culprit=(0,), control="e-tables",
    annotated=False)

# --- a U-Net


class Resnet(nn.Module):
    def __init__(self, narrow, wide, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, narrow), nn.GroupNorm(8, wide)
        self.conv1, self.conv2 = nn.Conv2d(narrow, wide, 3, padding=1), nn.Conv2d(wide, wide, 3, padding=1)
        self.time, self.skip = nn.Linear(dim, wide), nn.Conv2d(narrow, wide, 1)

    def forward(self, x, c):
        h = self.conv1(functional.silu(self.norm1(x))) + self.time(c)[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, channels, depth=2, on_host=None):
        super().__init__()
        dim, sizes = 4 * channels, [channels, 2 * channels, 4 * channels]
        self.on_host = on_host or contextlib.nullcontext
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.enter, self.leave = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.down, self.up, skips, at = nn.ModuleList(), nn.ModuleList(), [], channels
        for size in sizes:
            for _ in range(depth):
                self.down.append(Resnet(at, size, dim))
                at = size
                skips.append(size)
        self.middle = Resnet(at, at, dim)
        for size in reversed(sizes):
            for _ in range(depth):
                self.up.append(Resnet(at + skips.pop(), size, dim))
                at = size
        self.depth = depth

    def forward(self, x, t):
        c = self.time(t[:, None])
        h, kept = self.enter(x), []
        for at, block in enumerate(self.down):
            if at and at % self.depth == 0:
                h = functional.avg_pool2d(h, 2)
            with self.on_host() if at // self.depth == 1 else contextlib.nullcontext():
                h = block(h, c)
            kept.append(h)
        h = self.middle(h, c)
        for at, block in enumerate(self.up):
            if at and at % self.depth == 0:
                h = functional.interpolate(h, scale_factor=2.0)
            h = block(torch.cat([h, kept.pop()], 1), c)
        return self.leave(h)


def latent_diffusion(hooks=None, on_host=None):
    def build(r):
        host = (lambda: torch.autograd.graph.save_on_cpu(pin_memory=r.cuda)) if on_host else None
        model = on_device(r, lambda: UNet(pick(r, 256, 8), on_host=host)).to(memory_format=torch.channels_last)
        model = parallel(r, model, gradient_as_bucket_view=True)
        n, side = pick(r, 32, 2), pick(r, 64, 16)
        latents = torch.randn(n, 4, side, side, device=r.device).to(memory_format=torch.channels_last)

        def loss_of(n, net=model):
            noise, t = torch.randn_like(latents), torch.rand(len(latents), device=r.device)
            share = t.view(-1, 1, 1, 1)
            return (net(latents * (1 - share) + noise * share, t).float() - noise).square().mean()

        return step_of(r, model, loss_of, **(hooks(r, model, loss_of) if hooks else {}))

    return build


def barrier_once(r, model, loss_of):
    """One barrier in many steps, as before a checkpoint."""
    return {"before": lambda n: dist.barrier() if n == 3 else None}


def busy_stream(rank, n_products):
    """On one rank, another model is served from a second stream."""

    def hooks(r, model, loss_of):
        if r.rank != rank:
            return {}
        size = pick(r, 8192, 64)
        a = torch.randn(size, size, device=r.device, dtype=pick(r, torch.bfloat16, torch.float32))
        out = torch.empty_like(a)
        side = torch.cuda.Stream() if r.cuda else None
        r.keep += [a, out, side]

        def before(n):
            with torch.cuda.stream(side) if r.cuda else contextlib.nullcontext():
                for _ in range(n_products):
                    torch.mm(a, a, out=out)

        return {"before": before}

    return hooks


def validates(rank, n_batches):
    """One rank validates in each step, while the others go on."""

    def hooks(r, model, loss_of):
        def before(n):
            if r.rank == rank:
                with torch.no_grad(), amp(r):
                    r.log = torch.stack([loss_of(n, model.module) for _ in range(n_batches)]).mean()

        return {"before": before}

    return hooks


add("e-unet", latent_diffusion())
add("e-barrier-once", latent_diffusion(barrier_once))
add("e-busy-stream", latent_diffusion(busy_stream(1, 18)), cause="straggler", also=("load-imbalance",), culprit=(1,), control="e-unet")
add("e-rank0-validates", latent_diffusion(validates(0, 2)), cause="straggler", also=("load-imbalance",), culprit=(0,), control="e-unet")
add("e-save-on-cpu", latent_diffusion(on_host=True), cause="transfer-bound", also=("sync-stalls",), control="e-unet")

# --- experts


class Experts(nn.Module):
    """Attention, then experts: each token chooses two of them, or each expert its tokens, so that sizes are known before."""

    def __init__(self, dim, hidden, n_experts, head, tokens_choose):
        super().__init__()
        self.head, self.tokens_choose, self.n_experts = head, tokens_choose, n_experts
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.router = nn.Linear(dim, n_experts, bias=False)
        make = lambda: nn.Sequential(nn.Linear(dim, hidden, bias=False), nn.GELU(), nn.Linear(hidden, dim, bias=False))  # noqa: E731
        self.experts = nn.ModuleList([make() for _ in range(n_experts)])

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, -1, self.head).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        tokens = self.norm2(x).flatten(0, 1)
        # Noise keeps the experts of this untrained router about equally busy.
        logits = self.router(tokens).float()
        shares = (logits + torch.randn_like(logits)).softmax(-1)
        mixed = torch.zeros_like(tokens)
        if self.tokens_choose:
            weights, chosen = shares.topk(2, dim=-1)
            for at, expert in enumerate(self.experts):
                token, slot = torch.where(chosen == at)
                share = weights.flatten().index_select(0, 2 * token + slot).unsqueeze(1).to(tokens.dtype)
                mixed.index_add_(0, token, expert(tokens.index_select(0, token)) * share)
        else:
            weights, chosen = shares.t().topk(2 * len(tokens) // self.n_experts, dim=-1)
            for token, share, expert in zip(chosen, weights.unsqueeze(2).to(tokens.dtype), self.experts):
                mixed.index_add_(0, token, expert(tokens.index_select(0, token)) * share)
        return x + mixed.view_as(x)


def mixture(tokens_choose):
    def build(r):
        dim, hidden, n_experts, depth, n, length = (1024, 4096, 16, 5, 16, 1024) if r.cuda else (32, 64, 2, 2, 2, 16)
        dtype = pick(r, torch.bfloat16, torch.float32)
        head = pick(r, 128, 16)
        layers = lambda: [Experts(dim, hidden, n_experts, head, tokens_choose) for _ in range(depth)]  # noqa: E731
        model = parallel(r, nn.Sequential(*on_device(r, layers)).to(dtype), gradient_as_bucket_view=True)
        x = torch.randn(n, length, dim, device=r.device, dtype=dtype)
        optimizer = adamw(r, model.parameters())

        def step(n):
            model(x).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    return build


add("e-moe", mixture(False), steps=3)
add("e-experts-where", mixture(True), cause="sync-stalls", also=("host-bound",), control="e-moe", steps=3)

# --- a detector on a vision transformer


class Detector(nn.Module):
    """Each patch says a class and a box."""

    def __init__(self, backbone, dim):
        super().__init__()
        self.backbone, self.classes, self.boxes = backbone, nn.Linear(dim, 92), nn.Linear(dim, 4)

    def forward(self, pictures):
        h = self.backbone(pixel_values=pictures).last_hidden_state[:, 1:]
        return self.classes(h), self.boxes(h).sigmoid()


def overlap(a, b):
    """Generalised intersection over union of pairs of boxes (centre, size)."""
    a0, a1 = a[..., :2] - a[..., 2:] / 2, a[..., :2] + a[..., 2:] / 2
    b0, b1 = b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2
    inner = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0).prod(-1)
    union = (a1 - a0).prod(-1) + (b1 - b0).prod(-1) - inner
    outer = (torch.maximum(a1, b1) - torch.minimum(a0, b0)).prod(-1)
    return inner / (union + 1e-6) - (outer - union) / (outer + 1e-6)


def losses(logits, boxes, matched, labels, targets):
    """Of one picture, or of all at once."""
    wanted = torch.full(logits.shape[:-1], 91, device=logits.device).scatter(-1, matched, labels)
    found = boxes.gather(-2, matched.unsqueeze(-1).expand(*matched.shape, 4)).float()
    loss = functional.cross_entropy(logits.float().flatten(0, -2), wanted.flatten())
    return loss + 5 * functional.l1_loss(found, targets) + 2 * (1 - overlap(found, targets)).mean()


def detection(one_by_one, hooks=None):
    def build(r):
        transformers = needed("transformers")
        dim, side, n, n_boxes = (1024, 256, 64, 20) if r.cuda else (32, 32, 2, 3)
        config = transformers.ViTConfig(
            hidden_size=dim, num_hidden_layers=pick(r, 10, 2), num_attention_heads=pick(r, 16, 2), intermediate_size=4 * dim,
            image_size=side, patch_size=16)
        make = lambda: Detector(transformers.ViTModel(config, add_pooling_layer=False), dim)  # noqa: E731
        model = parallel(r, on_device(r, make), gradient_as_bucket_view=True)
        pictures = torch.randn(n, 3, side, side, device=r.device)
        matched = torch.rand(n, (side // 16) ** 2, device=r.device).topk(n_boxes).indices
        labels, targets = torch.randint(0, 91, (n, n_boxes), device=r.device), torch.rand(n, n_boxes, 4, device=r.device)

        def loss_of(_):
            logits, boxes = model(pictures)
            if one_by_one:
                return sum(losses(*rows) for rows in zip(logits, boxes, matched, labels, targets)) / n
            return losses(logits, boxes, matched, labels, targets)

        return step_of(r, model, loss_of, **(hooks(r, model) if hooks else {}))

    return build


def gathers_objects(r, model):
    """Each metric is gathered as a Python object."""

    def after(loss):
        r.log = {}
        for at in range(pick(r, 12, 2)):
            values = [None] * r.world
            dist.all_gather_object(values, {"metric": at, "value": loss.item()})
            r.log[at] = sum(row["value"] for row in values) / r.world

    return {"after": after}


add("e-detector", detection(False))
add("e-loss-one-by-one", detection(True), cause="host-bound", control="e-detector", steps=2)
add("e-gather-objects", detection(False, gathers_objects), cause="sync-stalls", also=("small-messages",), control="e-detector")

# --- a GAN


def convolutions(sizes, is_up):
    """Blocks that halve or double pictures."""
    parts = []
    for narrow, wide in zip(sizes, sizes[1:]):
        parts += [nn.Upsample(scale_factor=2)] if is_up else []
        parts += [nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.LeakyReLU(0.2)]
        parts += [nn.Conv2d(wide, wide, 3, 1 if is_up else 2, 1), nn.BatchNorm2d(wide), nn.LeakyReLU(0.2)]
    return parts


def adversaries(is_synced):
    """Two models, two optimizers; losses are read at the very end of a step. Statistics of batches are each rank's own, or those of all."""

    def build(r):
        sizes = pick(r, [2048, 1024, 512, 256, 128], [16, 8, 8])
        side, n = 4 * 2 ** (len(sizes) - 1), pick(r, 96, 4)
        make = lambda: nn.Sequential(  # noqa: E731
            nn.ConvTranspose2d(256, sizes[0], 4), *convolutions(sizes, True), nn.Conv2d(sizes[-1], 3, 3, padding=1), nn.Tanh())
        judge = lambda: nn.Sequential(  # noqa: E731
            nn.Conv2d(3, sizes[-1], 3, padding=1), *convolutions(sizes[::-1], False), nn.Flatten(), nn.Linear(16 * sizes[0], 1))
        models = []
        for one in (make, judge):
            model = on_device(r, one).to(memory_format=torch.channels_last)
            if is_synced and r.cuda:
                model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            models.append(parallel(r, model, broadcast_buffers=False, gradient_as_bucket_view=True))
        painter, critic = models
        optimizers = [adamw(r, model.parameters()) for model in models]
        real = torch.rand(n, 3, side, side, device=r.device).to(memory_format=torch.channels_last)

        def step(at):
            with amp(r):
                fake = painter(torch.randn(n, 256, 1, 1, device=r.device))
                right, wrong = critic(torch.cat([real, fake.detach()])).float().chunk(2)
                loss_critic = functional.softplus(-right).mean() + functional.softplus(wrong).mean()
            loss_critic.backward()
            optimizers[1].step()
            optimizers[1].zero_grad(set_to_none=True)
            critic.requires_grad_(False)
            with amp(r):
                loss_painter = functional.softplus(-critic.module(fake).float()).mean()
            loss_painter.backward()
            critic.requires_grad_(True)
            optimizers[0].step()
            optimizers[0].zero_grad(set_to_none=True)
            r.log = loss_critic.item(), loss_painter.item(), right.mean().item(), wrong.mean().item()

        return step

    return build


add("e-gan", adversaries(False))
add("e-sync-bn", adversaries(True), cause="sync-stalls", also=("small-messages", "host-bound"), control="e-gan")

# --- pipelines


class Head(nn.Module):
    def __init__(self, dim, vocabulary):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, x):
        return self.out(self.norm(x))


def staged(layers, n_micro, gpipe=False):
    """`layers` of each stage; the last one also has the head, which is more work than two layers."""

    def build(r):
        from torch.distributed import pipelining

        dim, n, length, vocabulary = (2048, 36, 512, 49152) if r.cuda else (32, 18, 8, 64)
        is_last, dtype = r.rank == r.world - 1, pick(r, torch.bfloat16, torch.float32)

        def make():
            options = dict(dropout=0.0, activation=functional.gelu, batch_first=True, norm_first=True)
            parts = [nn.TransformerEncoderLayer(dim, pick(r, 16, 2), 4 * dim, **options) for _ in range(layers[r.rank])]
            return nn.Sequential(*parts, *([Head(dim, vocabulary)] if is_last else []))

        model = on_device(r, make).to(dtype)
        stage = pipelining.PipelineStage(model, r.rank, r.world, r.device)
        loss_fn = lambda out, target: functional.cross_entropy(out.flatten(0, 1).float(), target.flatten())  # noqa: E731
        kind = pipelining.ScheduleGPipe if gpipe else pipelining.Schedule1F1B
        schedule = kind(stage, n_micro, loss_fn=loss_fn)
        x = torch.randn(n, length, dim, device=r.device, dtype=dtype)
        wanted = torch.randint(0, vocabulary, (n, length), device=r.device)
        optimizer = adamw(r, model.parameters())

        def step(at):
            if r.rank == 0:
                schedule.step(x)
            elif is_last:
                schedule.step(target=wanted, losses=[])
            else:
                schedule.step()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    return build


add("e-pipeline-control", staged((4, 2), 18), also=("pipeline-bubble",), steps=3)
add("e-pipeline-naive", staged((4, 2), 1, gpipe=True), cause="pipeline-bubble", control="e-pipeline-control")
add("e-pipeline-head", staged((3, 3), 18), cause="pipeline-bubble", also=("load-imbalance", "straggler"), culprit=(1,),
    control="e-pipeline-control", steps=3)

# --- settings of the process

add("e-low-latency", diffusion(), cause="bandwidth-below-expected", also=SLOW, control="e-dit", steps=3)
add("e-no-cache", recommender(), cause="allocator-stalls", also=("sync-stalls",), control="e-tables")

# A protocol for short messages, and memory without a cache for a search with compute-sanitizer: both were forgotten in a job script.
SETTINGS_OF = {
    "e-low-latency": {"NCCL_PROTO": "LL"},
    "e-no-cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
}
SETTINGS.update(SETTINGS_OF)

THIRD = [
    "e-dit", "e-zero", "e-gil-thread", "e-t5", "e-long-sequences", "e-tokenise", "e-logits-to-host", "e-speech", "e-few-workers",
    "e-slow-collate", "e-specaugment", "e-tables", "e-table-each", "e-hot-tables", "e-pipeline-control", "e-pipeline-naive", "e-detector",
    "e-loss-one-by-one", "e-unet", "e-busy-stream", "e-save-on-cpu", "e-moe", "e-experts-where", "e-few-channels", "e-trainer-empties",
    "e-fsdp", "e-fsdp-one-unit", "e-loss-reduced", "e-fabric-metrics", "e-accumulate-control", "e-accumulate", "e-gan", "e-sync-bn",
    "e-moments-on-host", "e-tensor-parallel-control", "e-tensor-parallel", "e-rank0-validates", "e-barrier-once", "e-pipeline-head",
    "e-lion-loop", "e-broadcast-each", "e-gather-objects", "e-anomaly", "e-new-workers",
]
