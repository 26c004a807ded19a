#: low fires callback-stops-on-its-own-loss local-stop-decision|collective-under-local-condition
import torch
import torch.distributed as dist

class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0

    def step(self, value):
        if value < self.best:
            self.best = value
            self.bad = 0
        else:
            self.bad += 1
        return self.bad >= self.patience

def validate(model, loader):
    total = 0.0
    for x, y in loader:
        total += torch.nn.functional.mse_loss(model(x), y).item()
    return total / len(loader)

def fit(model, optimizer, train_loader, val_loader, epochs):
    model = torch.nn.parallel.DistributedDataParallel(model)
    stopper = EarlyStopping(5)
    for epoch in range(epochs):
        for x, y in train_loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = validate(model.module, val_loader)
        if stopper.step(score):
            print("no progress, stopping")
            break
        dist.barrier()
#: low silent callback-stops-on-the-common-loss
import torch
import torch.distributed as dist

class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0

    def step(self, value):
        if value < self.best:
            self.best = value
            self.bad = 0
        else:
            self.bad += 1
        return self.bad >= self.patience

def validate(model, loader):
    total = torch.zeros(2, device="cuda")
    for x, y in loader:
        total[0] += torch.nn.functional.mse_loss(model(x), y)
        total[1] += 1
    dist.all_reduce(total)
    return (total[0] / total[1]).item()

def fit(model, optimizer, train_loader, val_loader, epochs):
    stopper = EarlyStopping(5)
    for epoch in range(epochs):
        score = validate(model, val_loader)
        if stopper.step(score):
            print("no progress, stopping")
            break
        dist.barrier()
#: fires best-checkpoint-by-rank-0-under-fsdp collective-under-rank-condition|sharded-call-under-rank-condition
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, FullStateDictConfig

class Saver:
    def __init__(self, folder):
        self.folder = folder
        self.best = None

    def save_best(self, model, score, epoch):
        if self.best is not None and score >= self.best:
            return
        self.best = score
        policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        if dist.get_rank() == 0:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
                weights = model.state_dict()
            torch.save({"epoch": epoch, "model": weights}, self.folder / "best.pt")
#: silent best-checkpoint-gathered-by-all
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, FullStateDictConfig

class Saver:
    def __init__(self, folder):
        self.folder = folder
        self.best = None

    def save_best(self, model, score, epoch):
        policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
            weights = model.state_dict()
        if dist.get_rank() == 0:
            torch.save({"epoch": epoch, "model": weights}, self.folder / "best.pt")
#: fires evaluation-of-a-sharded-model-on-rank-0 collective-under-rank-condition|sharded-call-under-rank-condition train.py
import torch
import deepspeed
from evaluation import evaluate

def main(args, model, train_loader, eval_loader):
    engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, config=args.deepspeed_config)
    for step, batch in enumerate(train_loader):
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()
        if step % args.eval_every == 0 and torch.distributed.get_rank() == 0:
            scores = evaluate(engine, eval_loader)
            print(scores)
#- evaluation.py
import torch

@torch.no_grad()
def evaluate(engine, loader):
    engine.eval()
    losses = []
    for batch in loader:
        losses.append(engine(**batch).loss.item())
    engine.train()
    return sum(losses) / len(losses)
#- ds_config.json
{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
#: low fires gather-of-generated-tokens size-by-rank
import torch
from accelerate import Accelerator

def generate_all(accelerator, model, loader, tokenizer, max_new_tokens):
    texts = []
    for batch in loader:
        with torch.no_grad():
            tokens = accelerator.unwrap_model(model).generate(
                batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=max_new_tokens
            )
        tokens = accelerator.gather(tokens)
        texts.extend(tokenizer.batch_decode(tokens, skip_special_tokens=True))
    return texts
#: silent generated-tokens-padded-first
import torch
from accelerate import Accelerator

def generate_all(accelerator, model, loader, tokenizer, max_new_tokens):
    texts = []
    for batch in loader:
        with torch.no_grad():
            tokens = accelerator.unwrap_model(model).generate(
                batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=max_new_tokens
            )
        tokens = accelerator.pad_across_processes(tokens, dim=1, pad_index=tokenizer.pad_token_id)
        tokens = accelerator.gather(tokens)
        texts.extend(tokenizer.batch_decode(tokens, skip_special_tokens=True))
    return texts
#: low fires decoding-ends-when-its-own-sequences-do local-stop-decision|collective-under-local-condition
import torch
from torch.distributed.fsdp import fully_shard

class Sampler:
    def __init__(self, model, eos):
        for block in model.blocks:
            fully_shard(block)
        self.model = fully_shard(model)
        self.eos = eos

    @torch.inference_mode()
    def sample(self, prompt, max_len):
        tokens = prompt
        finished = torch.zeros(prompt.size(0), dtype=torch.bool, device=prompt.device)
        for _ in range(max_len):
            logits = self.model(tokens)[:, -1]
            following = logits.argmax(-1)
            finished |= following == self.eos
            tokens = torch.cat([tokens, following[:, None]], dim=1)
            if finished.all():
                break
        return tokens
#: low silent decoding-ends-when-all-are-done
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Sampler:
    def __init__(self, model, eos):
        for block in model.blocks:
            fully_shard(block)
        self.model = fully_shard(model)
        self.eos = eos

    @torch.inference_mode()
    def sample(self, prompt, max_len):
        tokens = prompt
        finished = torch.zeros(prompt.size(0), dtype=torch.bool, device=prompt.device)
        for _ in range(max_len):
            logits = self.model(tokens)[:, -1]
            following = logits.argmax(-1)
            finished |= following == self.eos
            tokens = torch.cat([tokens, following[:, None]], dim=1)
            left = (~finished).sum()
            dist.all_reduce(left)
            if left.item() == 0:
                break
        return tokens
#: low fires oom-is-skipped-locally handler-skips-collective
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train_epoch(model, loader, optimizer, logger):
    model = DDP(model)
    for i, batch in enumerate(loader):
        try:
            loss = model(batch)
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            logger.warning("batch %d does not fit, skipped", i)
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            continue
        optimizer.step()
        optimizer.zero_grad()
#: low fires broken-sample-skips-the-step handler-skips-collective|collective-under-local-condition|local-stop-decision
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = optimizer
        self.loader = loader

    def compute(self, batch):
        out = self.model(batch["x"])
        return torch.nn.functional.cross_entropy(out, batch["y"])

    def run(self):
        for batch in self.loader:
            if batch is None:
                continue
            loss = self.compute(batch)
            if not torch.isfinite(loss):
                self.optimizer.zero_grad()
                continue
            loss.backward()
            self.optimizer.step()
#: low silent all-skip-the-step-together
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = optimizer
        self.loader = loader

    def compute(self, batch):
        out = self.model(batch["x"])
        return torch.nn.functional.cross_entropy(out, batch["y"])

    def run(self, steps):
        batches = iter(self.loader)
        for _ in range(steps):
            batch = next(batches)
            loss = self.compute(batch)
            bad = (~torch.isfinite(loss)).float()
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
            if bad.item() > 0:
                self.optimizer.zero_grad()
                continue
            loss.backward()
            self.optimizer.step()
#: fires metrics-reduced-on-rank-0 collective-under-rank-condition|exit-before-collective trainer.py
import torch.distributed as dist
from meters import AverageMeter
from env import is_main_process

class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.loss_meter = AverageMeter()

    def log(self, step, logger):
        if not is_main_process():
            return
        logger.info("step %d loss %.4f", step, self.loss_meter.global_avg())
#- meters.py
import torch
import torch.distributed as dist

class AverageMeter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    def global_avg(self):
        t = torch.tensor([self.total, self.count], device="cuda")
        dist.all_reduce(t)
        return (t[0] / t[1]).item()
#- env.py
import torch.distributed as dist

def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0
#: fires meter-property-reduces-on-rank-0 collective-under-rank-condition
import torch
import torch.distributed as dist

class SmoothedValue:
    def __init__(self):
        self.values = []

    @property
    def avg(self):
        t = torch.tensor(self.values, device="cuda").mean()
        dist.all_reduce(t)
        return t.item() / dist.get_world_size()

def train(loader, step_fn, rank):
    meter = SmoothedValue()
    for i, batch in enumerate(loader):
        meter.values.append(step_fn(batch))
        if i % 50 == 0 and rank == 0:
            print(f"[{i}] loss {meter.avg:.3f}")
#: low fires buckets-exhausted-at-different-times uneven-loader|local-stop-decision|loop-count-by-rank
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

class Shards(IterableDataset):
    def __init__(self, files, rank, world_size):
        self.files = files[rank::world_size]

    def __iter__(self):
        for name in self.files:
            with open(name) as lines:
                yield from lines

def train(model, files, optimizer, collate):
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Shards(files, rank, world), batch_size=32, collate_fn=collate)
    model = torch.nn.parallel.DistributedDataParallel(model.cuda())
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
#: low fires steps-computed-from-the-local-length uneven-loader|loop-count-by-rank|collective-under-local-condition
import math
import torch
import torch.distributed as dist

def run(model, samples, optimizer, batch_size):
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = samples[rank::world]
    model = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(math.ceil(len(mine) / batch_size)):
        batch = mine[step * batch_size:(step + 1) * batch_size]
        model(batch).loss.backward()
        optimizer.step()
#: low silent steps-computed-from-the-even-length
import math
import torch
import torch.distributed as dist

def run(model, samples, optimizer, batch_size):
    rank, world = dist.get_rank(), dist.get_world_size()
    even = len(samples) // world
    mine = samples[rank * even:(rank + 1) * even]
    model = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(even // batch_size):
        batch = mine[step * batch_size:(step + 1) * batch_size]
        model(batch).loss.backward()
        optimizer.step()
#: low fires cache-is-built-where-the-file-is-missing collective-under-local-condition|exit-before-collective|local-stop-decision
import os
import torch
import torch.distributed as dist

class IndexedDataset:
    def __init__(self, path):
        self.path = path
        self.index = self.load_index()

    def load_index(self):
        cached = self.path + ".idx"
        if not os.path.exists(cached):
            if dist.get_rank() == 0:
                torch.save(self.scan(), cached)
            dist.barrier()
        return torch.load(cached)

    def scan(self):
        return [len(line) for line in open(self.path)]
#: low silent cache-is-built-by-rank-0-alone
import os
import torch
import torch.distributed as dist

class IndexedDataset:
    def __init__(self, path):
        self.path = path
        self.index = self.load_index()

    def load_index(self):
        cached = self.path + ".idx"
        if dist.get_rank() == 0 and not os.path.exists(cached):
            torch.save(self.scan(), cached)
        dist.barrier()
        return torch.load(cached)

    def scan(self):
        return [len(line) for line in open(self.path)]
#: low fires resume-if-a-checkpoint-is-there collective-under-local-condition|local-stop-decision
from pathlib import Path
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def __init__(self, folder):
        self.folder = Path(folder)

    def latest(self):
        steps = sorted(self.folder.glob("step-*"))
        return steps[-1] if steps else None

    def maybe_load(self, state):
        found = self.latest()
        if found is None:
            return 0
        dcp.load(state, checkpoint_id=str(found))
        return int(found.name.split("-")[1])
#: low silent resume-where-rank-0-says
from pathlib import Path
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

class Checkpointer:
    def __init__(self, folder):
        self.folder = Path(folder)

    def latest(self):
        steps = sorted(self.folder.glob("step-*"))
        return str(steps[-1]) if steps else None

    def maybe_load(self, state):
        found = [self.latest() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found, src=0)
        if found[0] is None:
            return 0
        dcp.load(state, checkpoint_id=found[0])
        return 1
#: low fires wall-clock-budget-ends-the-run local-stop-decision|collective-under-local-condition
import time
import torch
import torch.distributed as dist

class Budget:
    def __init__(self, hours):
        self.start = time.time()
        self.seconds = hours * 3600

    def is_spent(self):
        return time.time() - self.start > self.seconds

def train(model, loader, optimizer, hours):
    model = torch.nn.parallel.DistributedDataParallel(model)
    budget = Budget(hours)
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        if budget.is_spent():
            print("time is up")
            break
    dist.barrier()
#: low fires periodic-save-by-the-clock collective-under-local-condition
import time
from accelerate import Accelerator

def train(model, loader, optimizer, minutes):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    last = time.monotonic()
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        if time.monotonic() - last > minutes * 60:
            accelerator.wait_for_everyone()
            accelerator.save_state("latest")
            last = time.monotonic()
#: low fires kill-file-seen-by-some local-stop-decision|collective-under-local-condition
import os
import torch
import torch.distributed as dist

def train(model, loader, optimizer, run_dir):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        optimizer.step()
        if os.path.isfile(os.path.join(run_dir, "STOP")):
            break
    dist.destroy_process_group()
#: low fires preemption-flag-read-by-each local-stop-decision|collective-under-local-condition
import signal
import torch
import torch.distributed as dist

class Preemption:
    def __init__(self):
        self.requested = False
        signal.signal(signal.SIGUSR1, self.on_signal)

    def on_signal(self, signum, frame):
        self.requested = True

def train(model, loader, save, optimizer):
    model = torch.nn.parallel.DistributedDataParallel(model)
    preemption = Preemption()
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        if preemption.requested:
            save(model)
            break
#: low fires groups-made-per-node group-by-rank|collective-under-rank-condition
import os
import torch.distributed as dist

def node_group():
    rank = dist.get_rank()
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    first = rank - rank % per_node
    members = list(range(first, first + per_node))
    return dist.new_group(members)
#: low silent groups-of-all-nodes-made-by-all
import os
import torch.distributed as dist

def node_group():
    rank = dist.get_rank()
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    mine = None
    for first in range(0, dist.get_world_size(), per_node):
        members = list(range(first, first + per_node))
        group = dist.new_group(members)
        if rank in members:
            mine = group
    return mine
#: fires group-of-the-writers-made-by-the-writers collective-under-rank-condition|group-by-rank
import torch.distributed as dist

class ParallelWriter:
    def __init__(self, writers):
        self.rank = dist.get_rank()
        self.group = None
        if self.rank in writers:
            self.group = dist.new_group(writers)
#: low fires ring-sends-before-it-receives all-send-first
import torch
import torch.distributed as dist

class RingAttention:
    def __init__(self, group):
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def rotate(self, keys):
        received = torch.empty_like(keys)
        dist.send(keys, (self.rank + 1) % self.size)
        dist.recv(received, (self.rank - 1) % self.size)
        return received
#: low fires sampler-seeded-by-rank seed-by-rank|shuffle-before-split
import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Sampler

class ShuffledSampler(Sampler):
    def __init__(self, dataset, seed):
        self.n = len(dataset)
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.rng = np.random.default_rng(seed + self.rank)

    def __iter__(self):
        order = self.rng.permutation(self.n)
        order = order[: self.n // self.world * self.world]
        return iter(order[self.rank::self.world].tolist())
#: low fires loader-shuffles-without-a-sampler-under-ddp shuffle-before-split|seed-equal-on-all-ranks
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def main(dataset, model, local_rank, epochs):
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = DDP(model.cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
    torch.distributed.destroy_process_group()
#: low fires buckets-of-a-set-are-broadcast unordered-collectives
import torch.distributed as dist

class WeightSync:
    def __init__(self, model, trainable):
        self.model = model
        self.names = {n for n in trainable}

    def push(self, group):
        weights = dict(self.model.named_parameters())
        for name in self.names:
            dist.broadcast(weights[name].data, src=0, group=group)
#: low fires keys-differ-by-what-was-logged collective-under-local-condition|unordered-collectives|uneven-loader|size-by-rank|loop-count-by-rank
import torch
import torch.distributed as dist

class MetricTracker:
    def __init__(self):
        self.sums = {}

    def add(self, name, value):
        self.sums[name] = self.sums.get(name, 0.0) + value

    def reduce(self):
        out = {}
        for name, value in self.sums.items():
            t = torch.tensor(value, device="cuda")
            dist.all_reduce(t)
            out[name] = t.item()
        self.sums.clear()
        return out
#: low silent keys-are-fixed-in-advance
import torch
import torch.distributed as dist

NAMES = ("loss", "accuracy", "grad_norm")

class MetricTracker:
    def __init__(self):
        self.sums = {name: 0.0 for name in NAMES}

    def reduce(self):
        out = {}
        for name in NAMES:
            t = torch.tensor(self.sums[name], device="cuda")
            dist.all_reduce(t)
            out[name] = t.item()
        return out
#: low fires empty-rank-returns-before-the-gather local-stop-decision|collective-under-local-condition|exit-before-collective
import torch
import torch.distributed as dist

class Evaluator:
    def __init__(self):
        self.predictions = []

    def process(self, outputs):
        for out in outputs:
            self.predictions.append(out.cpu())

    def evaluate(self):
        if len(self.predictions) == 0:
            return {}
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, self.predictions)
        if dist.get_rank() != 0:
            return {}
        return {"n": sum(len(p) for p in parts)}
#: low silent empty-rank-gathers-too
import torch
import torch.distributed as dist

class Evaluator:
    def __init__(self):
        self.predictions = []

    def evaluate(self):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, self.predictions)
        if dist.get_rank() != 0:
            return {}
        n = sum(len(p) for p in parts)
        if n == 0:
            return {}
        return {"n": n}
#: fires rank-0-exits-after-a-failed-upload exit-before-collective|collective-under-rank-condition
import sys
import torch.distributed as dist

def publish(folder, upload, cfg):
    rank = dist.get_rank()
    if rank == 0:
        if not cfg.token:
            print("no token: nothing is published")
            return
        upload(folder)
    dist.barrier()
#: low fires handler-on-rank-0-around-the-save handler-skips-collective
import logging
from accelerate import Accelerator

def save(accelerator: Accelerator, model, path, push):
    try:
        write_card(path)
        push(path)
        accelerator.wait_for_everyone()
    except Exception as e:
        logging.warning("could not save: %s", e)
        return False
    return True
#: low fires download-fails-on-one-rank handler-skips-collective|local-stop-decision|collective-under-local-condition
import torch.distributed as dist

def fetch_weights(hub, name, retries):
    path = None
    try:
        path = hub.download(name)
    except OSError:
        return None
    dist.barrier()
    return path
#: low fires text-only-batch-skips-the-tower collective-under-local-condition|local-stop-decision
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

class MultiModal(nn.Module):
    def __init__(self, vision, language):
        super().__init__()
        self.vision = fully_shard(vision)
        self.language = fully_shard(language)

    def forward(self, input_ids, pixel_values=None):
        embeds = self.language.embed(input_ids)
        if pixel_values is not None:
            embeds = merge(embeds, self.vision(pixel_values))
        return self.language(embeds)
#: low fires experts-without-tokens-are-skipped collective-under-local-condition|local-stop-decision
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class MoE(nn.Module):
    def __init__(self, experts, router):
        super().__init__()
        self.experts = nn.ModuleList([FSDP(e) for e in experts])
        self.router = router

    def forward(self, x):
        choice = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            index = (choice == i).nonzero().squeeze(-1)
            if index.numel() == 0:
                continue
            out[index] = expert(x[index])
        return out
#: low fires layers-dropped-by-each collective-under-local-condition|local-stop-decision
import random
from torch import nn
from torch.distributed.fsdp import fully_shard

class Encoder(nn.Module):
    def __init__(self, layers, p):
        super().__init__()
        self.layers = nn.ModuleList(fully_shard(layer) for layer in layers)
        self.p = p

    def forward(self, x):
        for layer in self.layers:
            if self.training and random.random() < self.p:
                continue
            x = layer(x)
        return x
#: low fires scores-concatenated-and-gathered size-by-rank
import torch
import torch.distributed as dist

def validate(model, loader):
    scores = []
    for batch in loader:
        scores.append(model(batch["x"]))
    scores = torch.cat(scores)
    parts = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, scores)
    return torch.cat(parts).mean()
#: low fires kept-boxes-gathered size-by-rank
import torch
import torch.distributed as dist

def collect(boxes, scores, threshold):
    kept = boxes[scores > threshold]
    parts = [torch.zeros_like(kept) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, kept)
    return torch.cat(parts)
#: low silent kept-boxes-gathered-as-objects
import torch
import torch.distributed as dist

def collect(boxes, scores, threshold):
    kept = boxes[scores > threshold]
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, kept.cpu())
    return torch.cat(parts)
#: fires bound-to-device-0-before-nccl same-device-on-all-ranks|no-set-device|collective-before-set-device
import torch
import torch.distributed as dist

def worker(rank, world_size, model):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    model = model.to("cuda:0")
    model = torch.nn.parallel.DistributedDataParallel(model)
    dist.barrier()
    train(model)
    dist.destroy_process_group()
#: low fires group-rank-from-the-local-rank local-rank-as-rank
import os
import torch
import torch.distributed as dist

def setup():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", rank=local, world_size=torch.cuda.device_count())
    return local
#: low fires split-by-local-rank local-rank-as-rank
import os
import torch
from torch.utils.data import DataLoader, DistributedSampler

def make_loader(dataset, batch_size):
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    world_size = int(os.environ["WORLD_SIZE"])
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=local_rank)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)
#: fires step-hook-gathers-on-rank-0 collective-under-rank-condition|collective-in-rank-zero-function
import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only

class Model(pl.LightningModule):
    def validation_epoch_end(self, outputs):
        self.report(outputs)

    @rank_zero_only
    def report(self, outputs):
        everything = self.all_gather(outputs)
        self.logger.log_metrics({"n": len(everything)})
#: fires callback-saves-on-global-zero collective-under-rank-condition
from lightning.pytorch.callbacks import Callback

class SaveAtEnd(Callback):
    def on_train_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            trainer.save_checkpoint("final.ckpt")
#: fires trainer-callback-evaluates-on-main collective-under-rank-condition
from transformers import Trainer, TrainerCallback

class EvalEvery(TrainerCallback):
    def __init__(self, trainer: Trainer, n):
        self.trainer = trainer
        self.n = n

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.n == 0 and state.is_world_process_zero:
            metrics = self.trainer.evaluate()
            print(metrics)
#: fires barrier-in-one-arm collective-under-rank-condition
import torch.distributed as dist

def prepare(rank, download, cfg):
    if rank == 0:
        download(cfg.url)
        if cfg.convert:
            convert(cfg.path)
            dist.barrier()
    else:
        dist.barrier()
    return load(cfg.path)
#: low fires negotiated-length-on-one-side root-by-rank
import torch
import torch.distributed as dist

def share_prompts(prompts, rank):
    n = torch.tensor([len(prompts)], device="cuda")
    if rank == 0:
        dist.broadcast(n, src=0)
    else:
        dist.broadcast(n, src=0)
        prompts = torch.empty(n.item(), device="cuda")
    dist.broadcast(prompts, src=dist.get_rank())
    return prompts
#: low fires barrier-inside-the-batch-loop uneven-loader|loop-count-by-rank
import torch.distributed as dist
from tqdm import tqdm

def embed_all(encoder, chunks, rank, world):
    mine = [c for i, c in enumerate(chunks) if i % world == rank]
    vectors = []
    for chunk in tqdm(mine, disable=rank != 0):
        vectors.append(encoder.encode(chunk))
        dist.barrier()
    return vectors
#: fires main-flag-of-the-accelerator-around-evaluation collective-under-rank-condition|exit-before-collective
from accelerate import Accelerator

class Trainer:
    def __init__(self, cfg, model, loader):
        self.accelerator = Accelerator(mixed_precision=cfg.precision)
        self.is_main = self.accelerator.is_main_process
        self.model, self.loader = self.accelerator.prepare(model, loader)

    def evaluate(self):
        hits = []
        for batch in self.loader:
            out = self.model(batch["x"]).argmax(-1)
            hits.append(self.accelerator.gather_for_metrics(out == batch["y"]))
        return sum(h.float().mean() for h in hits) / len(hits)

    def after_epoch(self, epoch):
        if self.is_main:
            score = self.evaluate()
            self.accelerator.log({"score": score}, step=epoch)
#: fires samples-are-made-on-rank-0-with-a-sharded-model collective-under-rank-condition|sharded-call-under-rank-condition
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def preview(model, prompts, tokenizer):
    model.eval()
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids.cuda()
        out = model(ids)
        print(tokenizer.decode(out.logits.argmax(-1)[0]))
    model.train()

def train(model, loader, optimizer, prompts, tokenizer, every):
    model = FSDP(model)
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        if step % every == 0 and dist.get_rank() == 0:
            preview(model, prompts, tokenizer)
#: fires log-text-is-reduced-only-where-it-is-printed collective-under-rank-condition
import logging
import torch.distributed as dist

log = logging.getLogger(__name__)

def mean_over_ranks(x):
    x = x.clone()
    dist.all_reduce(x)
    return (x / dist.get_world_size()).item()

def after_step(step, loss, norm, args):
    if args.rank == 0 and step % args.log_interval == 0:
        log.info("step %d: loss %.3f, norm %.3f", step, mean_over_ranks(loss), norm)
#: fires save-helper-of-another-file-waits collective-under-rank-condition|exit-before-collective fit.py
from checkpoint import Checkpointer
from distributed import rank

def fit(cfg, model, optimizer, data):
    keeper = Checkpointer(cfg.out)
    for step, batch in enumerate(data):
        optimizer.step(model, batch)
        if step % cfg.save_every == 0 and rank() == 0:
            keeper.write(model, optimizer, step)
#- checkpoint.py
import os
import torch
from distributed import synchronize

class Checkpointer:
    def __init__(self, folder):
        self.folder = folder

    def write(self, model, optimizer, step):
        path = os.path.join(self.folder, f"{step}.pt")
        torch.save({"model": model.state_dict(), "step": step}, path)
        synchronize()
        self.prune()

    def prune(self):
        for old in sorted(os.listdir(self.folder))[:-3]:
            os.remove(os.path.join(self.folder, old))
#- distributed.py
import torch.distributed as dist

def rank():
    return dist.get_rank() if dist.is_initialized() else 0

def synchronize():
    if not dist.is_initialized():
        return
    if dist.get_world_size() == 1:
        return
    dist.barrier()
#: silent save-helper-of-another-file-decides-itself fit.py
from checkpoint import Checkpointer

def fit(cfg, model, optimizer, data):
    keeper = Checkpointer(cfg.out)
    for step, batch in enumerate(data):
        optimizer.step(model, batch)
        if step % cfg.save_every == 0:
            keeper.write(model, optimizer, step)
#- checkpoint.py
import os
import torch
from distributed import synchronize, rank

class Checkpointer:
    def __init__(self, folder):
        self.folder = folder

    def write(self, model, optimizer, step):
        if rank() == 0:
            torch.save({"model": model.state_dict(), "step": step}, os.path.join(self.folder, f"{step}.pt"))
        synchronize()
#- distributed.py
import torch.distributed as dist

def rank():
    return dist.get_rank() if dist.is_initialized() else 0

def synchronize():
    if not dist.is_initialized():
        return
    dist.barrier()
#: fires decorator-of-the-project-keeps-others-out collective-in-rank-zero-function|collective-under-rank-condition
import functools
import torch.distributed as dist

def only_on_master(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return func(*args, **kwargs)
    return wrapper

class Recorder:
    @only_on_master
    def record(self, values):
        dist.all_reduce(values)
        self.writer.add_scalar("v", values.item())
#: silent decorator-of-the-project-runs-on-all
import functools
import torch.distributed as dist

def timed(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        out = func(*args, **kwargs)
        if dist.get_rank() == 0:
            print(func.__name__)
        return out
    return wrapper

class Recorder:
    @timed
    def record(self, values):
        dist.all_reduce(values)
#: fires local-main-process-waits collective-under-rank-condition
from accelerate import PartialState

def prepare_data(cfg, build):
    state = PartialState()
    if state.is_local_main_process:
        build(cfg.data_dir)
        state.wait_for_everyone()
    return cfg.data_dir
#: fires last-stage-broadcasts-in-the-world collective-under-rank-condition
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def sync_stop_flag(flag):
    t = torch.tensor([int(flag)], device="cuda")
    if mpu.is_pipeline_last_stage():
        dist.broadcast(t, src=dist.get_world_size() - 1)
    return bool(t.item())
#: silent last-stage-broadcasts-to-all
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def sync_stop_flag(flag):
    t = torch.tensor([int(flag)], device="cuda")
    dist.broadcast(t, src=dist.get_world_size() - 1)
    return bool(t.item())
#: low fires others-leave-before-the-device-mesh exit-before-collective|collective-under-rank-condition
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def setup(cfg):
    rank = int(os.environ["RANK"])
    dist.init_process_group("nccl")
    if rank >= cfg.dp * cfg.tp:
        return None
    return init_device_mesh("cuda", (cfg.dp, cfg.tp), mesh_dim_names=("dp", "tp"))
#: fires tokenizer-built-by-rank-0-then-broadcast-by-rank-0 collective-under-rank-condition
import torch.distributed as dist

def shared_vocab(texts, rank):
    box = [None]
    if rank == 0:
        box[0] = build_vocab(texts)
        dist.broadcast_object_list(box, src=0)
    return box[0]
#: fires jax-gather-on-process-0 collective-under-rank-condition|exit-before-collective
import jax
from jax.experimental import multihost_utils

def write_metrics(metrics, writer, step):
    if jax.process_index() != 0:
        return
    host = multihost_utils.process_allgather(metrics)
    writer.write_scalars(step, host)
#: fires orbax-save-on-process-0 collective-under-rank-condition
import jax
import orbax.checkpoint as ocp

def save(path, step, state):
    manager = ocp.CheckpointManager(path)
    if jax.process_index() == 0:
        manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
#: fires horovod-metric-on-rank-0 collective-under-rank-condition
import horovod.torch as hvd
import torch

def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()

def test(model, loader):
    loss = run(model, loader)
    if hvd.rank() == 0:
        print("test loss", metric_average(loss, "loss"))
#: fires mpi-reduce-in-a-log-line collective-under-rank-condition
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

def report(residual, it):
    if rank == 0:
        print(it, comm.allreduce(residual, op=MPI.MAX))
#: fires fabric-saves-on-zero collective-under-rank-condition
import lightning as L

def main(cfg, model, optimizer, loader):
    fabric = L.Fabric(devices=cfg.devices, strategy="fsdp")
    fabric.launch()
    model, optimizer = fabric.setup(model, optimizer)
    for step, batch in enumerate(loader):
        loss = model(batch)
        fabric.backward(loss)
        optimizer.step()
        if step % cfg.every == 0 and fabric.global_rank == 0:
            fabric.save(f"{step}.ckpt", {"model": model})
#: low fires handed-rank-is-a-number-of-the-node local-rank-as-rank
import torch.multiprocessing as mp
import torch.distributed as dist

def worker(local_rank, args):
    dist.init_process_group("nccl", init_method=args.url, rank=local_rank, world_size=args.nodes * args.gpus)
    run(local_rank, args)

def main(args):
    mp.spawn(worker, nprocs=args.gpus, args=(args,))
#: silent handed-rank-counts-the-nodes
import torch
import torch.multiprocessing as mp
import torch.distributed as dist

def worker(local_rank, args):
    torch.cuda.set_device(local_rank)
    rank = args.node * args.gpus + local_rank
    dist.init_process_group("nccl", init_method=args.url, rank=rank, world_size=args.nodes * args.gpus)
    run(local_rank, args)
    dist.destroy_process_group()

def main(args):
    mp.spawn(worker, nprocs=args.gpus, args=(args,))
#: low fires flag-of-the-stopper-is-local local-stop-decision|collective-under-local-condition train.py
import torch
from stopping import EarlyStopping

def run(model, train_loader, val_loader, optimizer, epochs):
    model = torch.nn.parallel.DistributedDataParallel(model)
    stopping = EarlyStopping(patience=7)
    for epoch in range(epochs):
        for x, y in train_loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = sum(torch.nn.functional.mse_loss(model.module(x), y).item() for x, y in val_loader)
        stopping(val_loss, model)
        if stopping.early_stop:
            break
#- stopping.py
class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.counter = 0
        self.best = None
        self.early_stop = False

    def __call__(self, val_loss, model):
        if self.best is None or val_loss < self.best:
            self.best = val_loss
            self.counter = 0
        else:
            self.counter += 1
            if self.counter >= self.patience:
                self.early_stop = True
#: low silent flag-of-the-stopper-is-common train.py
import torch
import torch.distributed as dist
from stopping import EarlyStopping

def run(model, train_loader, val_loader, optimizer, epochs):
    stopping = EarlyStopping(patience=7)
    for epoch in range(epochs):
        train_one_epoch(model, train_loader, optimizer)
        val_loss = validate(model, val_loader)
        val_loss = torch.tensor(val_loss, device="cuda")
        dist.all_reduce(val_loss)
        stopping(val_loss.item(), model)
        if stopping.early_stop:
            break
#- stopping.py
class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.counter = 0
        self.best = None
        self.early_stop = False

    def __call__(self, val_loss, model):
        if self.best is None or val_loss < self.best:
            self.best = val_loss
            self.counter = 0
        else:
            self.counter += 1
            if self.counter >= self.patience:
                self.early_stop = True
#: low fires trial-is-pruned-locally local-stop-decision|collective-under-local-condition|handler-skips-collective
import torch
import torch.distributed as dist

def objective(trial, model, loader, optimizer, epochs):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for epoch in range(epochs):
        score = 0.0
        for batch in loader:
            loss = model(batch).loss
            loss.backward()
            optimizer.step()
            score += loss.item()
        trial.report(score, epoch)
        if trial.should_prune():
            raise RuntimeError("pruned")
    return score
#: low fires scaler-skips-the-reduction-on-overflow collective-under-local-condition|local-stop-decision
import torch
import torch.distributed as dist

class MasterOptimizer:
    def has_overflow(self):
        return any(torch.isinf(p.grad).any() for p in self.params if p.grad is not None)

    def step(self):
        if self.has_overflow():
            self.scale /= 2
            return
        for p in self.params:
            dist.all_reduce(p.grad)
        self.inner.step()
#: low silent scaler-agrees-on-the-overflow
import torch
import torch.distributed as dist

class MasterOptimizer:
    def has_overflow(self):
        flag = torch.tensor(float(any(torch.isinf(p.grad).any() for p in self.params)), device="cuda")
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return flag.item() > 0

    def step(self):
        if self.has_overflow():
            self.scale /= 2
            return
        for p in self.params:
            dist.all_reduce(p.grad)
        self.inner.step()
#: low fires unused-parameters-are-left-out-of-the-reduction collective-under-local-condition|local-stop-decision|unordered-collectives
import torch.distributed as dist

def average_gradients(model):
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
#: low silent unused-parameters-are-reduced-as-zeros
import torch
import torch.distributed as dist

def average_gradients(model):
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
#: low fires sequence-lengths-of-the-batch-say-how-often loop-count-by-rank|uneven-loader|collective-under-local-condition
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Critic:
    def __init__(self, net, micro):
        self.net = FSDP(net)
        self.micro = micro

    def values(self, batch):
        longest = batch["lengths"].max().item()
        out = []
        for start in range(0, longest, self.micro):
            out.append(self.net(batch["ids"][:, start:start + self.micro]))
        return torch.cat(out, dim=1)
#: low fires rollout-until-enough local-stop-decision|collective-under-local-condition|uneven-loader|loop-count-by-rank
import torch
import torch.distributed as dist

def collect(policy, env, target):
    done = 0
    while done < target:
        episode = env.run(policy)
        done += int(episode.success.sum().item())
        dist.all_reduce(episode.reward)
    return done
#: low fires retry-in-a-loop-with-a-barrier handler-skips-collective|local-stop-decision|collective-under-local-condition
import time
import torch.distributed as dist

def load_with_retries(path, read, n):
    for attempt in range(n):
        try:
            data = read(path)
            break
        except IOError:
            time.sleep(2 ** attempt)
            dist.barrier()
    return data
#: low fires only-ranks-with-work-reduce collective-under-local-condition|local-stop-decision|exit-before-collective
import torch
import torch.distributed as dist

def reduce_scores(scores):
    values = [s for s in scores if s is not None]
    if values:
        t = torch.stack(values).sum(0)
        dist.all_reduce(t)
        return t
    return None
#: low fires queue-of-requests-differs local-stop-decision|collective-under-local-condition
import queue
import torch.distributed as dist

class Engine:
    def __init__(self):
        self.requests = queue.Queue()

    def step(self, model):
        if self.requests.empty():
            return None
        request = self.requests.get()
        out = model(request.tokens)
        dist.all_reduce(out)
        return out
#: low fires disk-is-full-on-one-node collective-under-local-condition|local-stop-decision|handler-skips-collective
import shutil
import torch.distributed.checkpoint as dcp

def save(state, path, need):
    free = shutil.disk_usage(path).free
    if free < need:
        print("not enough space, no checkpoint")
        return
    dcp.save(state, checkpoint_id=path)
#: low fires file-handles-run-out-in-the-middle handler-skips-collective
import torch.distributed as dist

def index_files(files, rank, world):
    sizes = {}
    for name in files[rank::world]:
        try:
            sizes[name] = count_lines(name)
        except UnicodeDecodeError:
            print("bad file", name)
            return None
    out = [None] * world
    dist.all_gather_object(out, sizes)
    return out
#: low fires names-of-modules-from-a-set unordered-collectives
import torch.distributed as dist

def sync_lora(model, targets, src):
    wanted = set(targets) & set(dict(model.named_modules()))
    for name in wanted:
        dist.broadcast(model.get_submodule(name).weight.data, src)
#: low silent names-of-modules-sorted
import torch.distributed as dist

def sync_lora(model, targets, src):
    wanted = sorted(set(targets) & set(dict(model.named_modules())))
    for name in wanted:
        dist.broadcast(model.get_submodule(name).weight.data, src)
#: low fires files-in-the-order-of-the-disk unordered-collectives
import os
import torch
import torch.distributed as dist

def load_parts(folder, rank):
    out = {}
    for name in os.listdir(folder):
        box = [torch.load(os.path.join(folder, name)) if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        out[name] = box[0]
    return out
#: low fires dict-difference-decides-the-order unordered-collectives
import torch.distributed as dist

def push_changed(old, new, group):
    for key in new.keys() - old.keys():
        dist.broadcast(new[key], src=0, group=group)
#: low fires scores-of-variable-length-reduced size-by-rank
import torch
import torch.distributed as dist

class Ranker:
    def loss(self, batch):
        scores = self.head(batch["pairs"])
        mask = batch["mask"].bool()
        kept = torch.masked_select(scores, mask)
        dist.all_reduce(kept)
        return kept.mean()
#: low fires last-batch-is-smaller size-by-rank
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

def embed(dataset, model, dim):
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(dataset, batch_size=64))
    rows = []
    for batch in loader:
        rows.append(model(batch))
    rows = torch.cat(rows)
    return accelerator.gather(rows)
#: low fires one-rank-picks-another-dtype type-by-rank
import torch
import torch.distributed as dist

def share(weights, rank, shape):
    if rank == 0:
        t = torch.tensor(weights, dtype=torch.float64, device="cuda")
    else:
        t = torch.empty(shape, dtype=torch.float32, device="cuda")
    dist.broadcast(t, src=0)
    return t
#: low fires noise-of-the-diffusion-is-the-same-on-all seed-equal-on-all-ranks
import torch
import torch.distributed as dist

def restore(path, model):
    box = [torch.load(path) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    model.load_state_dict(box[0]["model"])
    torch.set_rng_state(box[0]["rng"])
#: low fires epoch-of-the-sampler-is-the-rank seed-by-rank
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def loaders(dataset, epochs):
    sampler = DistributedSampler(dataset)
    for epoch in range(epochs):
        sampler.set_epoch(epoch * dist.get_world_size() + dist.get_rank())
        yield sampler
#: low fires shuffled-by-the-global-generator shuffle-before-split|seed-by-rank
import random
import torch.distributed as dist

def my_files(files):
    random.shuffle(files)
    per = len(files) // dist.get_world_size()
    rank = dist.get_rank()
    return files[rank * per:(rank + 1) * per]
#: low fires split-is-drawn-anew-by-each-rank seed-by-rank|shuffle-before-split
import torch
import torch.distributed as dist
from torch.utils.data import random_split, DataLoader, DistributedSampler

def loaders(dataset, n_val):
    seed = torch.initial_seed() + dist.get_rank()
    g = torch.Generator().manual_seed(seed)
    train, val = random_split(dataset, [len(dataset) - n_val, n_val], generator=g)
    return DataLoader(train, sampler=DistributedSampler(train)), DataLoader(val)
#: low fires permutation-of-a-generator-seeded-by-rank shuffle-before-split|seed-by-rank
import torch
import torch.distributed as dist

class BucketSampler:
    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch + dist.get_rank())
        order = torch.randperm(len(self.data), generator=g).tolist()
        return iter(order[self.rank::self.world_size])
