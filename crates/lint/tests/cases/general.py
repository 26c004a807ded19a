#: fires ignite-barrier-on-rank-0 collective-under-rank-condition
import ignite.distributed as idist

def save(state):
    if idist.get_rank() == 0:
        write(state)
        idist.barrier()
#: fires booster-saves-shards-on-master sharded-call-under-rank-condition|collective-under-rank-condition
from colossalai.booster import Booster
from colossalai.cluster import DistCoordinator

def save(booster: Booster, model, path):
    coordinator = DistCoordinator()
    if coordinator.is_master():
        booster.save_model(model, path, shard=True)
#: fires coordinator-blocks-on-master collective-under-rank-condition
from colossalai.cluster import DistCoordinator

def save(model, path):
    coordinator = DistCoordinator()
    if coordinator.is_master():
        write(model, path)
        coordinator.block_all()
#: fires report-of-one-worker collective-under-rank-condition
from ray import train

def loop(config):
    for epoch in range(config["epochs"]):
        loss = run_epoch()
        if train.get_context().get_world_rank() == 0:
            train.report({"loss": loss})
#: silent report-of-all-workers
from ray import train

def loop(config):
    for epoch in range(config["epochs"]):
        loss = run_epoch()
        train.report({"loss": loss})
        if train.get_context().get_world_rank() == 0:
            print(loss)
#: fires paddle-reduce-on-rank-0 collective-under-rank-condition
import paddle.distributed as dist

def mean(loss):
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
    return loss
#: fires own-wrapper-of-the-library collective-under-rank-condition
import torch.distributed as dist

class Communicator:
    def __init__(self):
        self.rank = dist.get_rank()

    @property
    def is_root(self):
        return self.rank == 0

    def sync(self):
        dist.barrier()

def finish(communicator: Communicator, path):
    if communicator.is_root:
        write(path)
        communicator.sync()
#: fires wrapper-kept-in-an-attribute collective-under-rank-condition
import torch.distributed as dist

class Comm:
    def mean(self, x):
        dist.all_reduce(x)
        return x

class Trainer:
    def __init__(self):
        self.comm = Comm()
        self.is_main = dist.get_rank() == 0

    def report(self, loss):
        if self.is_main:
            print(self.comm.mean(loss))
#: low fires sys-exit-of-rank-0 exit-before-collective|collective-under-rank-condition
import sys
import torch.distributed as dist

def main(args):
    if dist.get_rank() == 0 and args.dry_run:
        print(args)
        sys.exit(0)
    dist.barrier()
#: fires evaluate-in-the-callback collective-under-rank-condition|collective-in-rank-zero-function
import torch.distributed as dist

def evaluate(model, loader):
    total = sum_of(model, loader)
    dist.all_reduce(total)
    return total

def train(model, loaders, epochs):
    for epoch in range(epochs):
        fit(model, loaders["train"])
        if dist.get_rank() == 0:
            score = evaluate(model, loaders["valid"])
            print(score)
#: silent evaluate-on-all
import torch.distributed as dist

def evaluate(model, loader):
    total = sum_of(model, loader)
    dist.all_reduce(total)
    return total

def train(model, loaders, epochs):
    for epoch in range(epochs):
        fit(model, loaders["train"])
        score = evaluate(model, loaders["valid"])
        if dist.get_rank() == 0:
            print(score)
#: fires gathered-parameters-on-rank-0 collective-under-rank-condition
import deepspeed
import torch.distributed as dist

def init(model):
    if dist.get_rank() == 0:
        with deepspeed.zero.GatheredParameters(model.weight, modifier_rank=0):
            model.weight.zero_()
#: silent gathered-parameters-on-all
import deepspeed
import torch.distributed as dist

def init(model):
    with deepspeed.zero.GatheredParameters(model.weight, modifier_rank=0):
        if dist.get_rank() == 0:
            model.weight.zero_()
#: low fires memory-decides-the-size collective-under-local-condition|loop-count-by-rank|uneven-loader|size-by-rank
import torch
import torch.distributed as dist
from accelerate.utils import find_executable_batch_size

def detect(model):
    @find_executable_batch_size(starting_batch_size=64)
    def attempt(size):
        model(torch.ones(size, 8))
        return size

    return attempt()

def score(model, requests):
    size = detect(model)
    out = []
    for start in range(0, len(requests), size):
        got = model(requests[start : start + size])
        parts = [torch.zeros_like(got) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, got)
        out.append(parts)
    return out
#: low fires list-of-this-rank-is-empty exit-before-collective|collective-under-local-condition|local-stop-decision
import torch.distributed as dist

def flush(pending):
    items = [p for p in pending if p.rank == dist.get_rank()]
    if not items:
        return None
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, items)
    return gathered
#: low fires file-decides-to-resume collective-under-local-condition|local-stop-decision
import os
import torch
import torch.distributed as dist

def resume(model, path):
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    dist.barrier()
    model.load_state_dict(state["model"])
    return state["step"]
#: low silent file-decided-by-rank-0
import os
import torch
import torch.distributed as dist

def resume(model, path):
    found = [os.path.exists(path) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    if not found[0]:
        return 0
    dist.barrier()
    return 1
#: low fires clock-decides-to-stop local-stop-decision|collective-under-local-condition
import time
import torch.distributed as dist

def train(loader, step, limit):
    start = time.time()
    for i in range(1000):
        loss = step(i)
        dist.all_reduce(loss)
        if time.time() - start > limit:
            break
#: low silent clock-agreed
import time
import torch
import torch.distributed as dist

def train(loader, step, limit):
    start = time.time()
    for i in range(1000):
        loss = step(i)
        dist.all_reduce(loss)
        over = torch.tensor(float(time.time() - start > limit))
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.item():
            break
#: low fires signal-handler-leaves local-stop-decision|collective-under-local-condition
import signal
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.stopped = False
        signal.signal(signal.SIGTERM, self.on_signal)

    def on_signal(self, number, frame):
        self.stopped = True

    def train(self, loader):
        for step in range(1000):
            loss = self.step(step)
            dist.all_reduce(loss)
            if self.stopped:
                break
        dist.barrier()
#: low fires early-stopping-on-local-loss local-stop-decision|collective-under-local-condition
import torch.distributed as dist

class EarlyStopping:
    def __init__(self, patience):
        self.best = float("inf")
        self.bad = 0
        self.patience = patience

    def step(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad >= self.patience

def train(model, loader, valid, epochs):
    stopper = EarlyStopping(3)
    for epoch in range(epochs):
        for batch in loader:
            loss = model(batch)
            dist.all_reduce(loss)
        val_loss = validate(model, valid)
        if stopper.step(val_loss):
            break
    dist.barrier()
#: low fires swallowed-download-error handler-skips-collective|local-stop-decision
import torch.distributed as dist

def fetch(urls):
    for url in urls:
        try:
            download(url)
        except OSError:
            continue
        dist.barrier()
#: low fires expert-without-tokens collective-under-local-condition|local-stop-decision
import torch
import torch.distributed as dist

def forward(tokens, router, experts, group):
    idx = router(tokens).argmax(-1)
    for e, expert in enumerate(experts):
        mask = idx == e
        if mask.any():
            out = expert(tokens[mask])
            dist.all_reduce(out, group=group)
#: low fires dict-keys-of-this-rank unordered-collectives|collective-under-local-condition|uneven-loader|size-by-rank
import torch.distributed as dist

def reduce_metrics(metrics):
    names = {name for name in metrics}
    for name in names:
        dist.all_reduce(metrics[name])
#: low fires keys-that-each-rank-has collective-under-local-condition|uneven-loader|loop-count-by-rank
import torch
import torch.distributed as dist

def reduce_losses(batch, model):
    losses = {}
    for task in batch["tasks"]:
        losses[task] = model(batch, task)
    for task, loss in losses.items():
        dist.all_reduce(loss)
    return losses
#: low fires async-save-and-barrier collective-in-background
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

def save(state, path):
    pending = dcp.async_save(state, checkpoint_id=path)
    dist.barrier()
    return pending
#: low silent async-save-with-a-group
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

GROUP = dist.new_group(backend="gloo")

def save(state, path):
    pending = dcp.async_save(state, checkpoint_id=path, process_group=GROUP)
    dist.barrier()
    return pending
#: low silent async-save-awaited
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

def save(state, path):
    pending = dcp.async_save(state, checkpoint_id=path)
    pending.result()
    dist.barrier()
#: low fires thread-on-the-default-group collective-in-background
import threading
import torch.distributed as dist

class Reporter:
    def start(self, values):
        self.thread = threading.Thread(target=self.reduce, args=(values,))
        self.thread.start()

    def reduce(self, values):
        dist.all_reduce(values)
#: low fires submitted-to-a-pool collective-in-background
from concurrent.futures import ThreadPoolExecutor
import torch.distributed as dist

POOL = ThreadPoolExecutor(1)

def gather(values, out):
    dist.all_gather_object(out, values)

def start(values, out):
    return POOL.submit(gather, values, out)
#: low silent thread-with-its-own-group
import threading
import torch.distributed as dist

class Reporter:
    def __init__(self):
        self.group = dist.new_group(backend="gloo")

    def start(self, values):
        threading.Thread(target=self.reduce, args=(values,)).start()

    def reduce(self, values):
        dist.all_reduce(values, group=self.group)
#: low silent thread-that-writes
import threading
import torch.distributed as dist

def start(values):
    dist.barrier()
    threading.Thread(target=write, args=(values,)).start()

def write(values):
    print(values)
#: low fires seed-by-rank-then-shuffle shuffle-before-split|seed-by-rank
import random
import torch.distributed as dist

def parts(paths, seed):
    rank, world = dist.get_rank(), dist.get_world_size()
    random.seed(seed + rank)
    random.shuffle(paths)
    return paths[rank::world]
#: low fires permutation-by-rank shuffle-before-split|seed-by-rank
import torch
import torch.distributed as dist

def parts(dataset):
    rank, world = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(dataset)).tolist()
    return [dataset[i] for i in order[rank::world]]
#: low silent permutation-of-a-shared-seed
import torch
import torch.distributed as dist

def parts(dataset, seed):
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator()
    generator.manual_seed(seed)
    order = torch.randperm(len(dataset), generator=generator).tolist()
    return [dataset[i] for i in order[rank::world]]
#: low fires save-state-in-a-file-that-says-nothing sharded-call-under-rank-condition
from accelerate import Accelerator

def train(path):
    accelerator = Accelerator()
    if accelerator.is_main_process:
        accelerator.save_state(path)
#: low fires isend-waits-late all-send-first|p2p-unmatched
import torch.distributed as dist

def exchange(x, y):
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.send(x, (rank + 1) % world)
    dist.recv(y, (rank - 1) % world)
#: low fires group-made-under-a-condition collective-under-rank-condition|group-by-rank
import torch.distributed as dist

def groups(tp):
    rank = dist.get_rank()
    if rank < tp:
        return dist.new_group(list(range(tp)))
    return None
#: low fires two-exits-of-a-generator uneven-loader|local-stop-decision|collective-under-local-condition
import torch.distributed as dist

def train(model, iterator):
    while True:
        batch = next(iterator, None)
        if batch is None:
            break
        loss = model(batch)
        dist.all_reduce(loss)
#: low fires local-length-of-loader loop-count-by-rank|uneven-loader|collective-under-local-condition
import torch.distributed as dist

def train(model, dataloader):
    steps = len(dataloader)
    for step in range(steps):
        loss = model(step)
        dist.all_reduce(loss)
#: low fires raise-on-bad-batch local-stop-decision|collective-under-local-condition|handler-skips-collective
import torch
import torch.distributed as dist

def step(batch, model):
    loss = model(batch)
    if torch.isnan(loss):
        raise ValueError("loss is NaN")
    dist.all_reduce(loss)
#: low fires signal-of-a-script local-stop-decision|collective-under-local-condition
import signal
import torch.distributed as dist

STOP = False

def on_signal(number, frame):
    global STOP
    STOP = True

def train(step):
    signal.signal(signal.SIGUSR1, on_signal)
    for i in range(1000):
        dist.all_reduce(step(i))
        if STOP:
            break
    dist.barrier()
#: low silent signal-agreed
import signal
import torch
import torch.distributed as dist

STOP = False

def on_signal(number, frame):
    global STOP
    STOP = True

def train(step):
    signal.signal(signal.SIGUSR1, on_signal)
    for i in range(1000):
        flag = torch.tensor(int(STOP))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            break
    dist.barrier()
#: silent presence-of-the-rank
import os
import torch.distributed as dist

def setup():
    if os.environ.get("RANK") and os.environ.get("WORLD_SIZE"):
        dist.init_process_group("nccl")
        prepare()
        dist.barrier()
#: silent one-device-after-the-job
import lightning.pytorch as pl
import torch.distributed as dist

def main(model, config):
    trainer = pl.Trainer(devices=8)
    trainer.fit(model)
    dist.destroy_process_group()
    if trainer.is_global_zero:
        trainer = pl.Trainer(devices=1)
        trainer.test(model)
#: silent halves-of-an-object
import os
import torch.distributed as dist

class FirstOnNode:
    def __enter__(self):
        self.first = True
        if not dist.is_initialized():
            return True
        self.first = int(os.environ.get("LOCAL_RANK", 0)) == 0
        if not self.first:
            dist.barrier()
        return self.first

    def __exit__(self, kind, error, trace):
        if self.first and dist.is_initialized():
            dist.barrier()
#: silent state-before-it-is-sharded
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

def prepare(model, options):
    full = {}
    if dist.get_rank() == 0:
        full = get_model_state_dict(model, options=options)
    fully_shard(model)
    dist.barrier()
    return full
#: silent rank-0-stops-the-job-on-purpose
import torch.distributed as dist

def check(batches):
    if dist.get_rank() == 0:
        for i, batch in enumerate(batches):
            print(batch)
            if i == 9:
                break
        raise AssertionError("checked")
    dist.barrier()
#: silent world-of-one-node
import os
import torch.distributed as dist

def main():
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=4)
#: low fires set-fills-a-dict unordered-collectives
import torch.distributed as dist

def mean(x):
    if dist.is_initialized():
        dist.all_reduce(x)
    return x

class Sums:
    def __init__(self):
        self.sums = {}

    def record(self, fields):
        for name in set(fields):
            self.sums[name] = fields[name]

    def get(self):
        out = {}
        for name, value in self.sums.items():
            out[name] = mean(value)
        return out
#: low fires singleton-and-the-only-method collective-under-rank-condition
import torch.distributed as dist

class Distributed:
    _instance = None

    def __init__(self):
        self.rank = dist.get_rank()

    @classmethod
    def get_instance(cls):
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def is_root(self):
        return self.rank == 0

    def mean(self, x):
        dist.all_reduce(x)
        return x

class Totals:
    def __init__(self):
        self.dist = Distributed.get_instance()

    def get_all_means(self):
        return [self.dist.mean(v) for v in self.sums]

class Evaluator:
    def __init__(self, totals, path):
        self.totals, self.path = totals, path
        self.dist = Distributed.get_instance()

    def run(self):
        if self.dist.is_root():
            write(self.path, self.totals.get_all_means())
#: low fires tower-without-images collective-under-local-condition
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Model(torch.nn.Module):
    def __init__(self, vision, language):
        super().__init__()
        self.vision, self.language = FSDP(vision), FSDP(language)

    def forward(self, batch):
        embeds = batch["embeds"]
        if batch.get("pixels") is not None:
            embeds = embeds + self.vision(batch["pixels"])
        return self.language(embeds)
#: low fires last-part-is-smaller uneven-loader|loop-count-by-rank
import math
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

def run(rank, n, ids, model):
    ids = torch.split(ids, math.ceil(len(ids) / n))[rank]
    parts = DataLoader(ids, batch_size=8)
    model = DistributedDataParallel(model)
    for part in parts:
        model(part).mean().backward()
#: low fires padded-to-its-own-longest size-by-rank
import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence

def collate(rows):
    return pad_sequence([torch.tensor(row) for row in rows])

def collect(model, rows):
    hidden = model(collate(rows)).last_hidden_state
    parts = [torch.empty_like(hidden) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, hidden)
    return parts
#: fires one-helper-with-two-arguments collective-under-rank-condition|collective-order-by-rank
import torch.distributed as dist

def finish(kind, x):
    if kind == "full":
        dist.barrier()
        log(x, "a full state is written by all ranks, one after the other")
    else:
        dist.all_reduce(x)
        log(x, "the parts are summed, and each rank keeps its own of them")

def save(x, rank):
    finish("full", x)
    if rank == 0:
        finish("full", x)
    else:
        finish("part", x)
#: fires attribute-that-a-condition-decides collective-under-rank-condition
import torch.distributed as dist

def choose(args):
    if args.full:
        return "full"
    return "part"

class Saver:
    def __init__(self, args):
        self.mode = choose(args)

    def save(self, rank):
        if rank == 0 and self.mode == "full":
            dist.barrier()
#: silent documentation-about-sharded-models-shards-none convert.py
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict


def parts(model):
    """
    The state of a model.

    FSDP and FullyShardedDataParallel models give their parts.
    """
    return get_model_state_dict(model)


def convert(path, model):
    if dist.get_rank() == 0:
        write(path, parts(model))
    dist.barrier()
#: fires a-file-that-shards-gathers sharded-call-under-rank-condition convert.py
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


def parts(model):
    """
    The state of a model.
    """
    return get_model_state_dict(model)


def convert(path, model):
    if dist.get_rank() == 0:
        write(path, parts(model))
    dist.barrier()
#: silent a-state-that-is-given-is-not-loaded convert.py
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


def write(path, model, state=None):
    if state is None:
        state = {}
        dcp.load(state, checkpoint_id=path)
    model.load_state_dict(state)


def convert(path, model, small):
    state = get_model_state_dict(model)
    if dist.get_rank() == 0:
        write(path, small, state=state)
    dist.barrier()
#: fires a-state-that-is-loaded-by-one-rank collective-under-rank-condition convert.py
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


def write(path, model, state=None):
    if state is None:
        state = {}
        dcp.load(state, checkpoint_id=path)
    model.load_state_dict(state)


def convert(path, model, small):
    get_model_state_dict(model)
    if dist.get_rank() == 0:
        write(path, small)
    dist.barrier()
