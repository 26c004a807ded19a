#: fires engine-saves-on-rank-0 collective-under-rank-condition
# DeepSpeed#797
import deepspeed
import torch.distributed as dist

def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for step, batch in enumerate(loader):
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
    if dist.get_rank() == 0:
        engine.save_checkpoint(args.out, tag="last")
#: silent engine-saves-on-all
import deepspeed
import torch.distributed as dist

def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    engine.save_checkpoint(args.out, tag="last")
    if dist.get_rank() == 0:
        print("saved")
#: fires barrier-in-checkpointer-of-master collective-under-rank-condition
# allennlp#4693
import torch.distributed as dist

class Checkpointer:
    def save_checkpoint(self, state):
        write(state)
        dist.barrier()

class Trainer:
    def __init__(self, rank):
        self._master = rank == 0
        self._checkpointer = Checkpointer()

    def end_of_epoch(self, state):
        if self._master and self._checkpointer is not None:
            self._checkpointer.save_checkpoint(state)
#: silent checkpointer-decides-who-writes
import torch.distributed as dist

class Checkpointer:
    def save_checkpoint(self, state, is_master):
        if is_master:
            write(state)
        dist.barrier()

class Trainer:
    def __init__(self, rank):
        self._master = rank == 0
        self._checkpointer = Checkpointer()

    def end_of_epoch(self, state):
        if self._checkpointer is not None:
            self._checkpointer.save_checkpoint(state, self._master)
#: fires save-state-on-main sharded-call-under-rank-condition
# SimpleTuner#262
from accelerate import Accelerator, DeepSpeedPlugin

def main(args):
    accelerator = Accelerator()
    for step in range(args.steps):
        if step % 100 == 0:
            if accelerator.is_main_process:
                accelerator.save_state(args.out)
#: silent save-state-on-all
from accelerate import Accelerator

def main(args):
    accelerator = Accelerator()
    for step in range(args.steps):
        if step % 100 == 0:
            if accelerator.is_main_process:
                prune_old(args.out)
            accelerator.save_state(args.out)
#: fires sharded-state-dict-on-zero collective-under-rank-condition|sharded-call-under-rank-condition
# transformers#10596
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)

    def save(self, path):
        if self.is_world_process_zero():
            state = self.model.state_dict()
            torch.save(state, path)
#: silent sharded-state-dict-on-all
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)

    def save(self, path):
        state = self.model.state_dict()
        if self.is_world_process_zero():
            torch.save(state, path)
#: fires trainer-saves-on-main sharded-call-under-rank-condition
# a fine-tuning script under FSDP
import os
from transformers import Trainer, TrainingArguments

def main(model, data):
    args = TrainingArguments(output_dir="out", fsdp="full_shard auto_wrap")
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    is_main = int(os.environ.get("LOCAL_RANK", "0")) == 0
    if is_main:
        trainer.save_model("out")
#: silent trainer-saves-on-all
import os
from transformers import Trainer, TrainingArguments

def main(model, data):
    args = TrainingArguments(output_dir="out", fsdp="full_shard auto_wrap")
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    trainer.save_model("out")
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        print("done")
#: fires gather-object-on-main collective-under-rank-condition
# accelerate#2733
from accelerate import PartialState
from accelerate.utils import gather_object

state = PartialState()
prompts = run(state.process_index)
if state.is_main_process:
    everything = gather_object(prompts)
    print(everything)
#: silent gather-object-on-all
from accelerate import PartialState
from accelerate.utils import gather_object

state = PartialState()
prompts = run(state.process_index)
everything = gather_object(prompts)
if state.is_main_process:
    print(everything)
#: fires gather-for-metrics-on-main collective-under-rank-condition
# accelerate#2785
def evaluate(accelerator, model, loader, metric):
    for batch in loader:
        out = model(batch)
        if accelerator.is_main_process:
            preds, refs = accelerator.gather_for_metrics((out, batch["labels"]))
            metric.add_batch(preds, refs)
#: silent gather-for-metrics-on-all
def evaluate(accelerator, model, loader, metric):
    for batch in loader:
        out = model(batch)
        preds, refs = accelerator.gather_for_metrics((out, batch["labels"]))
        if accelerator.is_main_process:
            metric.add_batch(preds, refs)
#: fires table-in-trainer collective-under-rank-condition
# trl#1103
from accelerate.utils import gather_object
from transformers import Trainer

class OnlineTrainer(Trainer):
    def generate_completions(self, rows):
        if self.accelerator.is_main_process:
            rows = gather_object(rows)
            self.table(rows)
#: silent table-gathered-before
from accelerate.utils import gather_object
from transformers import Trainer

class OnlineTrainer(Trainer):
    def generate_completions(self, rows):
        rows = gather_object(rows)
        if self.accelerator.is_main_process:
            self.table(rows)
#: fires module-gathers-on-zero collective-under-rank-condition
# Lightning#16541
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def validation_epoch_end(self, outputs):
        if self.trainer.is_global_zero:
            outputs = self.all_gather(outputs)
            self.report(outputs)
#: silent module-gathers-on-all
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def validation_epoch_end(self, outputs):
        outputs = self.all_gather(outputs)
        if self.trainer.is_global_zero:
            self.report(outputs)
#: fires sync-dist-on-zero collective-under-rank-condition
# center-group#2
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def validation_epoch_end(self, outputs):
        if self.global_rank == 0:
            self.log("mAP", self.score(outputs), sync_dist=True)
#: silent rank-zero-only-log
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def validation_epoch_end(self, outputs):
        if self.global_rank == 0:
            self.log("mAP", self.score(outputs), rank_zero_only=True)
#: fires metric-in-rank-zero-hook collective-in-rank-zero-function
# torchmetrics#2684
import torchmetrics
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_only

class Report(Callback):
    def __init__(self):
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)

    @rank_zero_only
    def on_validation_epoch_end(self, trainer, pl_module):
        print(self.accuracy.compute())
#: silent metric-without-sync
import torchmetrics
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_only

class Report(Callback):
    def __init__(self):
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3, sync_on_compute=False)

    @rank_zero_only
    def on_validation_epoch_end(self, trainer, pl_module):
        print(self.accuracy.compute())
#: fires sum-in-a-print collective-under-rank-condition
# mlx#1210
import mlx.core as mx

group = mx.distributed.init()
for step in range(100):
    loss = train_step()
    if group.rank() == 0:
        print("loss", mx.distributed.all_sum(loss) / group.size())
#: silent sum-before-the-print
import mlx.core as mx

group = mx.distributed.init()
for step in range(100):
    loss = mx.distributed.all_sum(train_step()) / group.size()
    if group.rank() == 0:
        print("loss", loss)
#: fires helper-hides-the-rank collective-under-rank-condition
# maxdiffusion#426
import jax
from jax.experimental import multihost_utils

def profiler_enabled(config):
    return config.profile and jax.process_index() == 0

def train(config):
    for step in range(config.steps):
        if profiler_enabled(config) and step == config.first:
            multihost_utils.sync_global_devices("profile")
            jax.profiler.start_trace(config.dir)
#: silent helper-from-config
import jax
from jax.experimental import multihost_utils

def profiler_enabled(config):
    return config.profile

def train(config):
    for step in range(config.steps):
        if profiler_enabled(config) and step == config.first:
            multihost_utils.sync_global_devices("profile")
            if jax.process_index() == 0:
                jax.profiler.start_trace(config.dir)
#: fires counter-of-a-progress-bar collective-under-rank-condition
# transformers#31532
from accelerate import Accelerator
from tqdm.auto import tqdm

def main(loader, args):
    accelerator = Accelerator()
    bar = tqdm(range(args.steps), disable=not accelerator.is_local_main_process)
    for batch in loader:
        bar.update(1)
        if bar.n % args.every == 0:
            accelerator.wait_for_everyone()
#: silent plain-counter
from accelerate import Accelerator
from tqdm.auto import tqdm

def main(loader, args):
    accelerator = Accelerator()
    bar = tqdm(range(args.steps), disable=not accelerator.is_local_main_process)
    done = 0
    for batch in range(args.steps):
        bar.update(1)
        done += 1
        if done % args.every == 0:
            accelerator.wait_for_everyone()
#: fires full-tensor-on-zero collective-under-rank-condition
# AReaL#187
import torch.distributed as dist

def export(model, path):
    state = {}
    for name, param in model.named_parameters():
        if dist.get_rank() == 0:
            state[name] = param.data.full_tensor().cpu()
    if dist.get_rank() == 0:
        torch.save(state, path)
#: silent full-tensor-on-all
import torch.distributed as dist

def export(model, path):
    state = {}
    for name, param in model.named_parameters():
        whole = param.data.full_tensor()
        if dist.get_rank() == 0:
            state[name] = whole.cpu()
    if dist.get_rank() == 0:
        torch.save(state, path)
#: fires extra-barrier-on-rank-0 collective-under-rank-condition
# transformers-bloom-inference#40
import torch.distributed as dist

def load(rank, path):
    if rank == 0:
        download(path)
        dist.barrier()
    dist.barrier()
    return read(path)
#: silent one-barrier-each
import torch.distributed as dist

def load(rank, path):
    if rank == 0:
        download(path)
    dist.barrier()
    return read(path)
#: fires half-of-a-split-barrier collective-under-rank-condition
# Oscar#196
import torch

def load_cached(args):
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
    features = build(args)
    return features
#: silent both-halves
import torch

def load_cached(args):
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
    features = build(args)
    if args.local_rank == 0:
        torch.distributed.barrier()
    return features
#: fires rank-0-returns exit-before-collective
# Lightning#20536
from lightning import Fabric

def save(fabric: Fabric, state, path):
    if fabric.global_rank == 0:
        write(state, path)
        return path
    fabric.barrier()
    return path
#: silent barrier-after-the-branch
from lightning import Fabric

def save(fabric: Fabric, state, path):
    if fabric.global_rank == 0:
        write(state, path)
    fabric.barrier()
    return path
#: fires ddp-forward-on-one-gpu collective-under-rank-condition
# pytorch#54059
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def worker(gpu, net, loader):
    model = DDP(net.cuda(gpu), device_ids=[gpu])
    for epoch in range(10):
        train_epoch(model)
        if dist.get_rank() == 0:
            with torch.no_grad():
                for batch in loader:
                    model(batch)
        dist.barrier()
#: silent module-forward-on-one-gpu
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def worker(gpu, net, loader):
    model = DDP(net.cuda(gpu), device_ids=[gpu])
    for epoch in range(10):
        train_epoch(model)
        if dist.get_rank() == 0:
            with torch.no_grad():
                for batch in loader:
                    model.module(batch)
        dist.barrier()
#: fires evaluation-on-one-worker collective-under-rank-condition
# horovod#403
import horovod.torch as hvd

def metric_average(value, name):
    return hvd.allreduce(value, name=name)

def test(model, loader):
    loss = run(model, loader)
    return metric_average(loss, "loss")

for epoch in range(10):
    train(epoch)
    if hvd.rank() == 0:
        test(model, loader)
#: silent evaluation-on-all
import horovod.torch as hvd

def metric_average(value, name):
    return hvd.allreduce(value, name=name)

def test(model, loader):
    loss = run(model, loader)
    return metric_average(loss, "loss")

for epoch in range(10):
    train(epoch)
    loss = test(model, loader)
    if hvd.rank() == 0:
        print(loss)
#: fires guard-on-an-axis-of-the-group collective-under-rank-condition
# verl#5895
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def report(loss):
    if mpu.get_context_parallel_rank() == 0:
        dist.all_reduce(loss, group=mpu.get_data_parallel_group(with_context_parallel=True))
#: silent guard-on-another-axis
import torch.distributed as dist
from megatron.core import parallel_state as mpu

def report(loss):
    if mpu.is_pipeline_last_stage():
        dist.all_reduce(loss, group=mpu.get_data_parallel_group())
#: fires elif-chain collective-under-rank-condition
import torch.distributed as dist

def start(mode):
    rank = dist.get_rank()
    if mode == "fast":
        dist.barrier()
    elif rank == 0:
        dist.barrier()
#: fires while-of-rank-0 collective-under-rank-condition|loop-count-by-rank
import torch.distributed as dist

def serve(queue):
    rank = dist.get_rank()
    while rank == 0 and queue:
        item = queue.pop()
        dist.broadcast(item, src=0)
#: fires nested-helper-with-flag collective-under-rank-condition
import torch.distributed as dist

def maybe_sync(flag):
    if flag:
        dist.barrier()

def step(rank):
    maybe_sync(rank == 0)
#: fires collective-within-main-first collective-order-by-rank
from accelerate import Accelerator

def prepare(data):
    accelerator = Accelerator()
    with accelerator.main_process_first():
        data = data.map(tokenize)
        accelerator.gather(data.size)
    return data
#: silent work-within-main-first
from accelerate import Accelerator

def prepare(data):
    accelerator = Accelerator()
    with accelerator.main_process_first():
        data = data.map(tokenize)
    accelerator.wait_for_everyone()
    return data
#: fires continue-of-rank-0 exit-before-collective
import torch.distributed as dist

def loop(items, rank):
    for item in items:
        if rank == 0 and item.is_big:
            continue
        dist.all_reduce(item.value)
#: fires swapped-order collective-order-by-rank
import torch.distributed as dist

def exchange(a, b):
    if dist.get_rank() == 0:
        dist.broadcast(a, 0)
        dist.all_reduce(b)
    else:
        dist.all_reduce(b)
        dist.broadcast(a, 0)
#: fires m01-callback-hook collective-under-rank-condition|collective-in-rank-zero-function|sharded-call-under-rank-condition
import torch
import torch.distributed as dist

class Hook:
    def after_epoch(self, trainer):
        pass

class EvalHook(Hook):
    def __init__(self, loader):
        self.loader = loader

    def _evaluate(self, trainer):
        acc = trainer.score(self.loader)
        t = torch.tensor([acc], device="cuda")
        dist.all_reduce(t)
        return t.item() / dist.get_world_size()

    def after_epoch(self, trainer):
        if trainer.rank == 0:
            acc = self._evaluate(trainer)
            print(acc)

class Trainer:
    def __init__(self, hooks):
        self.rank = dist.get_rank()
        self.hooks = hooks

    def fit(self):
        for epoch in range(10):
            for hook in self.hooks:
                hook.after_epoch(self)
#: fires m02-base-class-template collective-under-rank-condition|exit-before-collective
import torch.distributed as dist

class Base:
    def save(self, path):
        if not self.is_main():
            return
        self._save(path)

    def is_main(self):
        return dist.get_rank() == 0

    def _save(self, path):
        raise NotImplementedError

class Sharded(Base):
    def _save(self, path):
        shards = [None] * dist.get_world_size()
        dist.all_gather_object(shards, self.shard)
        write(path, shards)
#: fires m03-lambda-module-flag collective-under-rank-condition
import os
import torch.distributed as dist

IS_MAIN = int(os.environ.get("RANK", "0")) == 0

def finish(metrics):
    if IS_MAIN:
        dist.reduce(metrics, dst=0)
        print(metrics)
#: fires m04-early-return-helper exit-before-collective|collective-under-rank-condition
import torch.distributed as dist

def is_writer():
    return not dist.is_initialized() or dist.get_rank() == 0

def log_stats(stats, step):
    if step % 10 or not is_writer():
        return
    total = stats.clone()
    dist.all_reduce(total)
    print(total)
#: fires m05-trainer-evaluate collective-under-rank-condition
from transformers import Trainer, TrainingArguments

def main(args, model, ds):
    targs = TrainingArguments(output_dir=args.out)
    trainer = Trainer(model=model, args=targs, train_dataset=ds, eval_dataset=ds)
    trainer.train()
    if trainer.is_world_process_zero():
        metrics = trainer.evaluate()
        trainer.save_metrics("eval", metrics)
#: fires m06-zero3-save-pretrained sharded-call-under-rank-condition|collective-under-rank-condition
import deepspeed
import torch.distributed as dist

def save(model_engine, tok, out):
    # ZeRO-3: parameters are partitioned
    if dist.get_rank() == 0:
        with deepspeed.zero.GatheredParameters(list(model_engine.parameters()), modifier_rank=0):
            model_engine.module.save_pretrained(out)
#: fires m07-fsdp-state-dict sharded-call-under-rank-condition|collective-under-rank-condition
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def train(net, data, path):
    model = FSDP(net)
    for batch in data:
        model(batch).sum().backward()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
#: fires m08-lightning-log-dir collective-in-rank-zero-function|collective-under-rank-condition
from pytorch_lightning import Callback
from pytorch_lightning.utilities import rank_zero_only

class Dump(Callback):
    @rank_zero_only
    def on_train_start(self, trainer, pl_module):
        path = trainer.log_dir
        with open(path + "/cfg", "w") as f:
            f.write("x")
#: fires m09-self-log-rank0 collective-under-rank-condition
import lightning as L

class Net(L.LightningModule):
    def training_step(self, batch, i):
        loss = self.net(batch)
        if self.global_rank == 0:
            self.log("loss", loss, sync_dist=True)
        return loss
#: fires m10-metric-compute collective-in-rank-zero-function
import torchmetrics
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_only

class M(LightningModule):
    def __init__(self):
        super().__init__()
        self.acc = torchmetrics.Accuracy(task="binary")

    def validation_step(self, batch, i):
        self.acc.update(self(batch[0]), batch[1])

    @rank_zero_only
    def on_validation_epoch_end(self):
        print(self.acc.compute())
#: fires m11-mlx collective-under-rank-condition
import mlx.core as mx

def report(loss):
    world = mx.distributed.init()
    if world.rank() == 0:
        print("loss", mx.distributed.all_sum(loss).item() / world.size())
#: fires m12-tqdm collective-under-rank-condition|loop-count-by-rank|exit-before-collective
from accelerate import Accelerator
from tqdm.auto import tqdm

def train(args, model, loader):
    accelerator = Accelerator()
    bar = tqdm(range(args.max_steps), disable=not accelerator.is_local_main_process)
    for batch in loader:
        loss = model(batch)
        accelerator.backward(loss)
        bar.update(1)
        if bar.n % 100 == 0:
            print(accelerator.gather(loss).mean())
#: fires m13-full-tensor collective-under-rank-condition
import torch.distributed as dist

def export(model):
    if dist.get_rank() == 0:
        out = {k: v.full_tensor().cpu() for k, v in model.named_parameters()}
        write(out)
#: fires m14-extra-barrier collective-under-rank-condition
import os
import torch.distributed as dist

def load(path):
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank == 0:
        fetch(path)
        dist.barrier()
    dist.barrier()
    return read(path)
#: fires m15-split-barrier-half collective-under-rank-condition
import torch.distributed as dist

def prepare(args):
    if args.local_rank not in (-1, 0):
        dist.barrier()
    build(args)
#: fires m16-fabric exit-before-collective|collective-under-rank-condition
from lightning.fabric import Fabric

def download(fabric: Fabric, url):
    if fabric.global_rank == 0:
        if have(url):
            return
        get(url)
    fabric.barrier()
#: fires m17-hvd-eval collective-under-rank-condition
import horovod.torch as hvd

def metric_average(val):
    return hvd.allreduce(val, name="avg").item()

def run(model, loader):
    hvd.init()
    for e in range(3):
        train(model)
        if hvd.rank() == 0:
            acc = test(model, loader)

def test(model, loader):
    acc = 0
    for x in loader:
        acc += model(x)
    return metric_average(acc)
#: fires m18-cp-rank collective-under-rank-condition
from megatron.core import mpu
import torch

def report(loss):
    if mpu.get_context_parallel_rank() == 0:
        torch.distributed.all_reduce(loss, group=mpu.get_data_parallel_group(with_context_parallel=True))
#: fires m19-accelerator-subclass collective-under-rank-condition
from accelerate import Accelerator
from accelerate.utils import gather_object

class Runner:
    def __init__(self):
        self.accelerator = Accelerator()

    def evaluate(self, prompts):
        outs = [self.gen(p) for p in prompts]
        if self.accelerator.is_main_process:
            outs = gather_object(outs)
            self.show(outs)
#: fires m20-conditional-expression collective-under-rank-condition
import torch.distributed as dist

def total(x, rank):
    return dist.all_reduce(x) if rank == 0 else None
#: fires m21-and-expression collective-under-rank-condition
import torch.distributed as dist

def maybe(rank, x):
    rank == 0 and dist.barrier()
#: fires m22-try-finally-rank exit-before-collective|collective-under-rank-condition|handler-skips-collective
import torch.distributed as dist

def setup(path):
    rank = dist.get_rank()
    if rank != 0:
        return read(path)
    make(path)
    dist.barrier()
    return read(path)
#: fires m23-on-main-decorator collective-in-rank-zero-function
from accelerate import Accelerator
accelerator = Accelerator()

@accelerator.on_main_process
def dump(model, path):
    accelerator.wait_for_everyone()
    write(model, path)
#: fires m24-jax collective-under-rank-condition
import jax
from jax.experimental import multihost_utils

def save(state, path):
    if jax.process_index() == 0:
        full = multihost_utils.process_allgather(state)
        write(path, full)
#: fires m25-orbax collective-under-rank-condition
import jax
import orbax.checkpoint as ocp

def save(state, path, step):
    mngr = ocp.CheckpointManager(path)
    if jax.process_index() == 0:
        mngr.save(step, args=ocp.args.StandardSave(state))
#: fires m26-deepspeed-nested collective-under-rank-condition
import deepspeed
import torch

def main(args, model):
    engine, opt, _, _ = deepspeed.initialize(args=args, model=model)
    for step, b in enumerate(load(args)):
        loss = engine(b)
        engine.backward(loss)
        engine.step()
        if step % 500 == 0 and torch.distributed.get_rank() == 0:
            print("saving")
            engine.save_checkpoint(args.out, tag=str(step))
#: fires m27-mpi collective-under-rank-condition
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.Get_rank()

def f(x):
    if rank == 0:
        y = comm.gather(x, root=0)
        print(y)
#: fires m28-match exit-before-collective|collective-under-rank-condition
import torch.distributed as dist

def f(x):
    match dist.get_rank():
        case 0:
            dist.broadcast(x, 0)
        case _:
            pass
#: fires m29-while-server collective-under-rank-condition|loop-count-by-rank
import torch.distributed as dist

def g(rank, items):
    while rank == 0 and items:
        items.pop()
        dist.barrier()
#: fires m30-context-class collective-under-rank-condition|exit-before-collective|collective-order-by-rank
import torch.distributed as dist

class first:
    def __enter__(self):
        if dist.get_rank() != 0:
            dist.barrier()

    def __exit__(self, *a):
        pass

def f():
    with first():
        work()
#: fires m31-log-helper collective-under-rank-condition
import logging
import torch.distributed as dist
log = logging.getLogger(__name__)

def mean(x):
    x = x.detach().clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()

def step(loss):
    if dist.get_rank() == 0:
        log.info("loss %f", mean(loss).item())
#: fires m32-save-in-strategy sharded-call-under-rank-condition|collective-under-rank-condition
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
import torch.distributed as dist
import torch

def save(model, rank, path):
    if rank == 0:
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            sd = model.state_dict()
        torch.save(sd, path)
#: fires m33-dcp collective-under-rank-condition
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

def save(sd, path):
    if dist.get_rank() == 0:
        dcp.save(sd, checkpoint_id=path)
#: fires m34-unwrapped-partial collective-under-rank-condition
from accelerate import PartialState

def f(x):
    state = PartialState()
    if state.is_last_process:
        state.wait_for_everyone()
#: fires m35-nonzero-return exit-before-collective|collective-under-rank-condition
import torch.distributed as dist

class Ckpt:
    def __init__(self):
        self.rank = dist.get_rank()

    @property
    def is_writer(self):
        return self.rank == 0

    def save(self, obj):
        if not self.is_writer:
            return
        self.flush(obj)

    def flush(self, obj):
        write(obj)
        dist.barrier()
#: fires m36-trainer-save-main sharded-call-under-rank-condition|collective-under-rank-condition
import argparse
from transformers import Trainer, TrainingArguments

def main(model, ds, tok):
    args = TrainingArguments(output_dir="o", fsdp="full_shard auto_wrap")
    trainer = Trainer(model=model, args=args, train_dataset=ds)
    trainer.train()
    if args.local_rank in (-1, 0):
        trainer.save_model("o")
        tok.save_pretrained("o")
#: fires m37-ddp-forward-eval collective-under-rank-condition
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import torchvision

def main(loader, val):
    model = DDP(torchvision.models.resnet50().cuda())
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            for x, y in val:
                model(x)
    dist.barrier()
#: silent m38-ok-broadcast-none
import torch.distributed as dist

def f(x):
    box = [x if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]
#: silent m39-ok-main-writes
import torch.distributed as dist

def f(x):
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        print(x)
    dist.barrier()
#: fires m40-two-groups-order collective-order-by-rank
import torch.distributed as dist

def f(x, y, tp_group, rank):
    if rank == 0:
        dist.all_reduce(x, group=tp_group)
        dist.all_reduce(y)
    else:
        dist.all_reduce(y)
        dist.all_reduce(x, group=tp_group)
#: silent zero3-save-pretrained-on-all
import deepspeed
import torch.distributed as dist

def save(model_engine, tok, out):
    # ZeRO-3: parameters are partitioned
    with deepspeed.zero.GatheredParameters(list(model_engine.parameters()), modifier_rank=0):
        if dist.get_rank() == 0:
            tok.save_pretrained(out)
#: silent log-dir-read-on-all
from pytorch_lightning import Callback
from pytorch_lightning.utilities import rank_zero_only

class Dump(Callback):
    def on_train_start(self, trainer, pl_module):
        self.write(trainer.log_dir)

    @rank_zero_only
    def write(self, path):
        with open(path + "/cfg", "w") as f:
            f.write("x")
#: fires one-step-left-out-in-a-function-with-a-caller exit-before-collective
import torch.distributed as dist

def sync_grads(model, step, skip_at):
    for p in model.parameters():
        if dist.get_rank() == 0 and step == skip_at:
            continue
        dist.all_reduce(p.grad)

def train(model, make_batch):
    for step in range(100):
        model(make_batch(step)).sum().backward()
        sync_grads(model, step, 7)
