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
