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
#: fires save-state-on-main collective-under-rank-condition
# SimpleTuner#262
from accelerate import Accelerator

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
