#: row 24 before collective-under-local-condition|exit-before-collective|local-stop-decision
import torch
import torch.distributed as dist

def params_norm(model, group):
    sharded = [p for p in model.parameters() if getattr(p, "is_sharded", False)]
    total = torch.zeros(1)
    if len(sharded) > 0:
        norm = torch.stack([p.norm() ** 2 for p in sharded]).sum()
        dist.all_reduce(norm, group=group)
        total += norm
    return total
#: row 24 after
import torch
import torch.distributed as dist

def params_norm(model, group):
    sharded = [p for p in model.parameters() if getattr(p, "is_sharded", False)]
    norm = torch.zeros(1)
    if len(sharded) > 0:
        norm = torch.stack([p.norm() ** 2 for p in sharded]).sum()
    dist.all_reduce(norm, group=group)
    return norm
#: row 25 before collective-under-rank-condition
import torch.distributed as dist
from megatron.core import mpu

def log_lengths(lengths):
    if mpu.is_pipeline_last_stage():
        dist.all_reduce(lengths)
        print(lengths)
#: row 25 after
import torch.distributed as dist
from megatron.core import mpu

def log_lengths(lengths):
    if mpu.is_pipeline_last_stage():
        dist.all_reduce(lengths, group=mpu.get_data_parallel_group())
        print(lengths)
#: row 26 before collective-under-local-condition
from mpi4py import MPI

comm = MPI.COMM_WORLD

def volume(points, inside):
    mask = inside(points)
    total = 0.0
    if mask.any():
        total = comm.allreduce(points[mask].sum())
    return total
#: row 26 after
from mpi4py import MPI

comm = MPI.COMM_WORLD

def volume(points, inside):
    mask = inside(points)
    return comm.allreduce(points[mask].sum())
#: row 27 before handler-skips-collective|local-stop-decision|collective-under-local-condition
import torch.distributed as dist

class Recipe:
    def run(self, loader):
        for batch in loader:
            try:
                batch = self.collate(batch)
            except ValueError as error:
                print(error)
                continue
            loss = self.step(batch)
            dist.all_reduce(loss)
#: row 27 after
import torch
import torch.distributed as dist

class Recipe:
    def run(self, n_steps, source):
        for step in range(n_steps):
            is_good = torch.ones(1)
            try:
                batch = self.collate(source[step])
            except ValueError as error:
                print(error)
                batch = None
                is_good = torch.zeros(1)
            dist.all_reduce(is_good, op=dist.ReduceOp.MIN)
            if is_good.item() == 0:
                continue
            loss = self.step(batch)
            dist.all_reduce(loss)
#: row 28 before local-stop-decision|exit-before-collective
import torch
import torch.distributed as dist

def fit(model, n_steps, batches):
    for step in range(n_steps):
        loss = model(batches(step))
        if torch.isnan(loss).any():
            break
        dist.all_reduce(loss)
#: row 28 after
import torch
import torch.distributed as dist

def fit(model, n_steps, batches):
    for step in range(n_steps):
        loss = model(batches(step))
        bad = torch.isnan(loss).any().float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0:
            raise ValueError("not a number on some rank")
        dist.all_reduce(loss)
#: row 29 before local-stop-decision|collective-under-local-condition|handler-skips-collective
import torch
from torch.nn.parallel import DistributedDataParallel

class Trainer:
    def __init__(self, model, optimizer):
        self.model = DistributedDataParallel(model)
        self.optimizer = optimizer

    def train(self, n_steps, batches):
        for step in range(n_steps):
            loss = self.model(batches(step))
            if torch.isnan(loss).any():
                raise ValueError("loss is not a number")
            loss.backward()
            self.optimizer.step()
#: row 29 after
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Trainer:
    def __init__(self, model, optimizer):
        self.model = DistributedDataParallel(model)
        self.optimizer = optimizer

    def train(self, n_steps, batches):
        for step in range(n_steps):
            loss = self.model(batches(step))
            if torch.isnan(loss).any():
                dist.destroy_process_group()
                raise ValueError("loss is not a number")
            loss.backward()
            self.optimizer.step()
#: row 30 before local-stop-decision
import torch.distributed as dist

def fit(trainer, n_epochs):
    best, waited = float("inf"), 0
    for epoch in range(n_epochs):
        loss = trainer.validation_loss().item()
        if loss < best:
            best, waited = loss, 0
        else:
            waited += 1
        if waited > 3:
            break
        dist.barrier()
#: row 30 after
import torch
import torch.distributed as dist

def fit(trainer, n_epochs):
    best, waited = float("inf"), 0
    for epoch in range(n_epochs):
        loss = trainer.validation_loss().item()
        if loss < best:
            best, waited = loss, 0
        else:
            waited += 1
        stop = torch.tensor(float(waited > 3))
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop.item() > 0:
            break
        dist.barrier()
#: row 31 before exit-before-collective|collective-under-rank-condition
import torch.distributed as dist

def fit(brain, n_epochs, patience):
    waited = 0
    for epoch in range(n_epochs):
        brain.fit_epoch(epoch)
        stop = False
        if dist.get_rank() == 0:
            waited = waited + 1 if brain.worse(epoch) else 0
            stop = waited > patience
        if stop:
            break
        dist.barrier()
#: row 31 after
import torch.distributed as dist

def fit(brain, n_epochs, patience, metric):
    waited = 0
    for epoch in range(n_epochs):
        brain.fit_epoch(epoch)
        dist.all_reduce(metric)
        waited = waited + 1 if brain.worse(metric) else 0
        if waited > patience:
            break
        dist.barrier()
#: row 32 before exit-before-collective|collective-under-rank-condition
import os
import torch.distributed as dist

RANK = int(os.getenv("RANK", -1))

def train(model, n_epochs, stopper):
    stop = False
    for epoch in range(n_epochs):
        one_epoch(model)
        if RANK in {-1, 0}:
            stop = stopper(epoch, validate(model))
        if stop:
            break
        dist.barrier()
#: row 32 after
import os
import torch.distributed as dist

RANK = int(os.getenv("RANK", -1))

def train(model, n_epochs, stopper):
    stop = False
    for epoch in range(n_epochs):
        one_epoch(model)
        if RANK in {-1, 0}:
            stop = stopper(epoch, validate(model))
        if RANK != -1:
            flags = [stop if RANK == 0 else None]
            dist.broadcast_object_list(flags, 0)
            stop = flags[0]
        if stop:
            break
        dist.barrier()
#: row 33 before exit-before-collective|collective-under-rank-condition|local-stop-decision
import lightning as L

class StopWhenStalled(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        stop = False
        if trainer.is_global_zero:
            stop = self.is_stalled(module)
        trainer.strategy.barrier()
        if stop:
            return
        trainer.strategy.broadcast(module.state)
#: row 33 after
import lightning as L

class StopWhenStalled(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        stop = False
        if trainer.is_global_zero:
            stop = self.is_stalled(module)
        stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
        if stop:
            return
        trainer.strategy.broadcast(module.state)
#: row 34 before local-stop-decision|collective-under-local-condition|exit-before-collective
import signal
import torch.distributed as dist

class Loop:
    def __init__(self):
        self.got_signal = False
        signal.signal(signal.SIGTERM, self.on_signal)

    def on_signal(self, number, frame):
        self.got_signal = True

    def run(self, n_steps, step):
        for n in range(n_steps):
            if self.got_signal:
                break
            dist.all_reduce(step(n))
#: row 34 after
import signal
import torch
import torch.distributed as dist

class Loop:
    def __init__(self):
        self.got_signal = False
        signal.signal(signal.SIGTERM, self.on_signal)

    def on_signal(self, number, frame):
        self.got_signal = True

    def run(self, n_steps, step):
        for n in range(n_steps):
            flag = torch.tensor(float(self.got_signal))
            dist.broadcast(flag, src=0)
            if flag.item() > 0:
                break
            dist.all_reduce(step(n))
#: row 35 before collective-under-rank-condition|exit-before-collective
import torch.distributed as dist

class Trainer:
    def should_stop(self, canceled, flag):
        reason = None
        if dist.get_rank() == 0:
            canceled, reason = self.ask_server()
        dist.broadcast(flag, src=0)
        canceled = flag.item() > 0
        if canceled and reason is not None:
            dist.broadcast(self.extra_steps, src=0)
        return canceled
#: row 35 after
import torch.distributed as dist

class Trainer:
    def should_stop(self, canceled, flag):
        reason = None
        if dist.get_rank() == 0:
            canceled, reason = self.ask_server()
        dist.broadcast(flag, src=0)
        canceled = flag.item() > 0
        if canceled:
            dist.broadcast(self.extra_steps, src=0)
        return canceled
#: row 36 before local-stop-decision|collective-under-local-condition
import torch
import torch.distributed as dist

class Optimizer:
    def step(self, grads):
        overflow = any(torch.isinf(grad).any() for grad in grads)
        if overflow:
            self.zero_grad()
            return False
        norm = sum(grad.norm() for grad in grads)
        dist.all_reduce(norm)
        self.update(norm)
        return True
#: row 36 after
import torch
import torch.distributed as dist

class Optimizer:
    def step(self, grads):
        overflow = any(torch.isinf(grad).any() for grad in grads)
        norm = sum(grad.norm() for grad in grads)
        dist.all_reduce(norm)
        if overflow:
            self.zero_grad()
            return False
        self.update(norm)
        return True
#: row 37 before uneven-loader|loop-count-by-rank|collective-under-local-condition
import torch.distributed as dist

def validate(model, val_loader):
    losses = []
    for batch in val_loader:
        loss = model(batch)
        dist.all_reduce(loss)
        losses.append(loss)
    return losses
#: row 37 after
import torch.distributed as dist

def validate(model, val_loader, n_steps):
    losses = []
    batches = iter(val_loader)
    for step in range(n_steps):
        loss = model(next(batches))
        dist.all_reduce(loss)
        losses.append(loss)
    return losses
#: row 38 before uneven-loader|loop-count-by-rank|collective-under-local-condition
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def validate(module, eval_loader):
    model = FSDP(module)
    total = 0.0
    for batch in eval_loader:
        total += model(batch).item()
    return total
#: row 38 after
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def validate(module, eval_loader):
    model = FSDP(module)
    n = torch.tensor(len(eval_loader))
    dist.all_reduce(n, op=dist.ReduceOp.MIN)
    total = 0.0
    batches = iter(eval_loader)
    for step in range(n.item()):
        total += model(next(batches)).item()
    return total
#: row 39 before uneven-loader|loop-count-by-rank|collective-under-local-condition
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def train(module, optimizer, stream):
    model = DDP(module)
    for batch in DataLoader(stream, batch_size=8):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
#: row 39 after
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def train(module, optimizer, stream):
    model = DDP(module)
    with Join([model, optimizer]):
        for batch in DataLoader(stream, batch_size=8):
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()
#: row 40 before uneven-loader|loop-count-by-rank|collective-under-local-condition
from accelerate import Accelerator

def train(model, packed_batches, optimizer):
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in packed_batches:
        loss = model(batch).loss
        accelerator.backward(loss)
        optimizer.step()
#: row 40 after
import torch
from accelerate import Accelerator

def train(model, packed_batches, optimizer):
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)
    lengths = accelerator.gather(torch.tensor(len(packed_batches)))
    n_steps = int(lengths.max().item())
    for step in range(n_steps):
        batch = packed_batches[step] if step < len(packed_batches) else dummy()
        loss = model(batch).loss
        accelerator.backward(loss)
        optimizer.step()
#: row 41 before uneven-loader|loop-count-by-rank|collective-under-local-condition
from mpi4py import MPI

comm = MPI.COMM_WORLD

def run_epoch(files, batch_size):
    mine = files[comm.rank::comm.size]
    for batch in batches_of(mine, batch_size):
        read(batch)
        comm.barrier()
#: row 41 after
from mpi4py import MPI

comm = MPI.COMM_WORLD

def run_epoch(files, batch_size):
    mine = files[comm.rank::comm.size]
    n_steps = comm.allreduce(len(mine) // batch_size, op=MPI.MIN)
    for step in range(n_steps):
        read(mine[step * batch_size:(step + 1) * batch_size])
        comm.barrier()
#: row 42 before uneven-loader|loop-count-by-rank|collective-under-local-condition
import math
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Actor:
    def __init__(self, module):
        self.model = FSDP(module)

    def update(self, batch, max_tokens):
        n_tokens = batch["attention_mask"].sum().item()
        n_micro = math.ceil(n_tokens / max_tokens)
        for micro in split(batch, n_micro):
            self.model(micro).backward()
#: row 42 after
import math
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Actor:
    def __init__(self, module):
        self.model = FSDP(module)

    def update(self, batch, max_tokens):
        n_tokens = batch["attention_mask"].sum().item()
        n_micro = torch.tensor(math.ceil(n_tokens / max_tokens))
        dist.all_reduce(n_micro, op=dist.ReduceOp.MAX)
        for n in range(n_micro.item()):
            self.model(part(batch, n)).backward()
#: row 43 before collective-under-local-condition|local-stop-decision|exit-before-collective|uneven-loader
import deepspeed

def train_step(module, config, batch, chunk):
    engine, _, _, _ = deepspeed.initialize(model=module, config=config)
    part = batch.get(chunk)
    if part is None:
        return 0.0
    loss = engine(part)
    engine.backward(loss)
    return loss.item()
#: row 43 after
import deepspeed

def train_step(module, config, batch, chunk):
    engine, _, _, _ = deepspeed.initialize(model=module, config=config)
    part = batch.get(chunk)
    is_dummy = part is None
    if is_dummy:
        part = dummy_like(batch)
    loss = engine(part)
    if is_dummy:
        loss = loss * 0
    engine.backward(loss)
    return loss.item()
#: row 44 before size-by-rank
import torch.distributed as dist

def share_labels(loader, group):
    for step in range(10):
        batch = next(loader)
        labels = batch["labels"].clone()
        dist.broadcast(labels, src=0, group=group)
#: row 44 after
import torch
import torch.distributed as dist

def share_labels(loader, group, batch_size, length):
    for step in range(10):
        batch = next(loader)
        labels = torch.full((batch_size, length), -1)
        n = batch["labels"].shape[0]
        labels[:n] = batch["labels"]
        dist.broadcast(labels, src=0, group=group)
#: row 45 before size-by-rank
import torch
import torch.nn.functional as F

class Trainer:
    def compute_loss(self, model, batch):
        logits = model(**batch).logits
        entropy = -(F.softmax(logits, -1) * F.log_softmax(logits, -1)).sum(-1)
        everyone = self.accelerator.gather_for_metrics(entropy)
        self.metrics["entropy"].append(everyone.mean().item())
#: row 45 after
import torch
import torch.nn.functional as F

class Trainer:
    def compute_loss(self, model, batch):
        logits = model(**batch).logits
        entropy = -(F.softmax(logits, -1) * F.log_softmax(logits, -1)).sum(-1)
        everyone = self.accelerator.gather_for_metrics(entropy.mean())
        self.metrics["entropy"].append(everyone.mean().item())
#: row 46 before collective-under-local-condition|local-stop-decision|size-by-rank
from accelerate import Accelerator

def log_lengths(accelerator, lengths):
    finished = lengths[lengths > 0]
    if finished.numel() == 0:
        return None
    return accelerator.gather(finished).float().mean()
#: row 46 after
from accelerate import Accelerator

def log_lengths(accelerator, lengths):
    finished = lengths[lengths > 0]
    finished = accelerator.pad_across_processes(finished, pad_index=-1)
    everyone = accelerator.gather(finished)
    everyone = everyone[everyone >= 0]
    if everyone.numel() == 0:
        return None
    return everyone.float().mean()
#: row 47 before size-by-rank
import torch
import torch.distributed as dist
from megatron.core import mpu

def reduce_aux_losses(num_layers, mtp_layers, losses, group):
    n = num_layers
    if mpu.is_pipeline_last_stage():
        n = num_layers + mtp_layers
    values = torch.zeros(n)
    for layer, loss in losses.items():
        values[layer] = loss
    dist.all_reduce(values, group=group)
    return values
#: row 47 after
import torch
import torch.distributed as dist

def reduce_aux_losses(num_layers, mtp_layers, losses, group):
    values = torch.zeros(num_layers + mtp_layers)
    for layer, loss in losses.items():
        values[layer] = loss
    dist.all_reduce(values, group=group)
    return values
#: row 48 before type-by-rank|size-by-rank
import torch
import torch.distributed as dist

def exchange(x, shape, precision, rank):
    if rank == 0:
        dist.send(x.float(), 1)
        return x
    out = torch.empty(shape, dtype=torch.bfloat16)
    dist.recv(out, 0)
    return out
#: row 48 after
import torch
import torch.distributed as dist

def exchange(x, shape, precision, rank):
    if rank == 0:
        dist.send(x.float(), 1)
        return x
    out = torch.empty(shape, dtype=torch.float32)
    dist.recv(out, 0)
    return out
#: row 49 before collective-under-local-condition|unordered-collectives|uneven-loader|loop-count-by-rank
import lightning as L

class Module(L.LightningModule):
    def validation_step(self, batch, n):
        losses = self(batch)
        for name, mask in batch["masks"].items():
            if mask.any():
                self.log("loss_" + name, losses[mask].mean(), sync_dist=True)
#: row 49 after
import lightning as L

NAMES = ["left", "right"]

class Module(L.LightningModule):
    def validation_step(self, batch, n):
        losses = self(batch)
        for name in NAMES:
            mask = batch["masks"][name]
            self.log("loss_" + name, (losses * mask).sum() / mask.sum().clamp(min=1), sync_dist=True)
#: row 50 before collective-under-local-condition|unordered-collectives|uneven-loader|loop-count-by-rank
import torch
import torch.distributed as dist

class Timers:
    def __init__(self):
        self.timers = {}

    def start(self, name):
        self.timers[name] = now()

    def log(self):
        for name, timer in self.timers.items():
            value = torch.tensor(timer.elapsed())
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
            print(name, value)
#: row 50 after
import torch
import torch.distributed as dist

class Timers:
    def __init__(self):
        self.timers = {}

    def start(self, name):
        self.timers[name] = now()

    def log(self):
        for name, timer in self.timers.items():
            print(name, timer.elapsed())
#: row 51 before collective-under-rank-condition|loop-count-by-rank|collective-under-local-condition|uneven-loader
import torch.distributed as dist
from megatron.core import mpu

def share_log_probs(batch, src, group):
    names = []
    if mpu.is_pipeline_last_stage():
        names = ["log_probs", "values"]
    for name in names:
        dist.broadcast(batch[name], src=src, group=mpu.get_pipeline_model_parallel_group())
#: row 51 after
import torch
import torch.distributed as dist
from megatron.core import mpu

def share_log_probs(batch, src, size):
    names = ["log_probs", "values"]
    if not mpu.is_pipeline_last_stage():
        for name in names:
            batch[name] = torch.empty(size)
    for name in names:
        dist.broadcast(batch[name], src=src, group=mpu.get_pipeline_model_parallel_group())
#: row 52 before unordered-collectives
import torch.distributed as dist

class Buckets:
    def __init__(self):
        self.by_param = {}

    def sync(self, params, group):
        buckets = {self.by_param[p] for p in params}
        for bucket in buckets:
            dist.reduce_scatter_tensor(bucket.shard, bucket.data, group=group)
#: row 52 after
import torch.distributed as dist

class Buckets:
    def __init__(self):
        self.by_param = {}

    def sync(self, params, group):
        buckets = {self.by_param[p] for p in params}
        for bucket in sorted(buckets, key=lambda bucket: bucket.number):
            dist.reduce_scatter_tensor(bucket.shard, bucket.data, group=group)
