#: fires helper-of-another-file collective-under-rank-condition train.py
import torch.distributed as dist

from storage import publish

def finish(model, path):
    if dist.get_rank() == 0:
        publish(model, path)
#- storage.py
import torch.distributed as dist

def publish(model, path):
    write(model, path)
    dist.barrier()
#: silent helper-of-another-file-on-all-ranks train.py
import torch.distributed as dist

from storage import publish

def finish(model, path):
    publish(model, path)
    if dist.get_rank() == 0:
        print(path)
#- storage.py
import torch.distributed as dist

def publish(model, path):
    write(model, path)
    dist.barrier()
#: silent followers-of-a-server serve.py
import torch.distributed as dist

from engine import Engine

def serve(model, port):
    engine = Engine(model)
    if dist.get_rank() == 0:
        server = Server(port, engine)
        server.run()
    elif dist.get_rank() > 0:
        engine.follow()
#- engine.py
import torch
import torch.distributed as dist

class Engine:
    def __init__(self, model):
        self.model = model

    def follow(self):
        while True:
            order = torch.zeros(1)
            dist.broadcast(order, src=0)
            if order.item() == 0:
                self.model.generate()
#: low silent helper-with-a-group-that-nobody-knows load.py
import torch.distributed as dist

from parts import deal

def load(state, context):
    local = {}
    if dist.get_rank() == 0:
        local = read(state)
    if context.column_rank == 0:
        local = deal(local, context.members)
    return deal(local, context.others)
#- parts.py
import torch.distributed as dist

def deal(state, members):
    dist.broadcast_object_list([state], group=members.handle)
    return state
#: silent trainers-reduce-among-themselves play.py
import torch.distributed as dist

from trainer import learn

def play():
    collect()

def main(agent):
    if dist.get_rank() == 0:
        play()
    else:
        learn(agent)
#- trainer.py
import torch
from torch.nn.parallel import DistributedDataParallel

def learn(agent):
    for batch in range(10):
        loss = agent(batch)
        loss.backward()
#: fires communicator-of-another-file collective-under-rank-condition main.py
from field import Field, comm

def main(steps):
    heat = Field()
    for step in range(steps):
        if comm.rank == 0:
            print(heat.mean())
            print(comm.allreduce(step))
#- field.py
from mpi4py import MPI

comm = MPI.COMM_WORLD

class Field:
    def mean(self):
        return comm.allreduce(1.0) / comm.size
#: silent communicator-of-another-file-on-all-ranks main.py
from field import Field, comm

def main(steps):
    heat = Field()
    for step in range(steps):
        mean = heat.mean()
        if comm.rank == 0:
            print(mean)
#- field.py
from mpi4py import MPI

comm = MPI.COMM_WORLD

class Field:
    def mean(self):
        return comm.allreduce(1.0) / comm.size
#: fires metrics-read-by-one-rank-at-the-end-of-an-epoch collective-under-rank-condition table.py
from lightning.pytorch.callbacks import Callback

class Table(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            write(trainer.callback_metrics)
#- module.py
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = self.net(batch)
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss
#: silent metrics-read-by-all-first table.py
from lightning.pytorch.callbacks import Callback

class Table(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        metrics = trainer.callback_metrics
        if trainer.is_global_zero:
            write(metrics, trainer.logged_metrics)
#- module.py
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = self.net(batch)
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss
#: silent metrics-that-no-log-synchronises table.py
from lightning.pytorch.callbacks import Callback

class Table(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            write(trainer.callback_metrics)
#- module.py
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = self.net(batch)
        self.log("loss", loss)
        return loss
#: silent metrics-after-they-were-computed table.py
from lightning.pytorch.callbacks import Callback

class Table(Callback):
    def on_validation_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            write(trainer.callback_metrics)
#- module.py
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def validation_step(self, batch, batch_idx):
        self.log("loss", self.net(batch), sync_dist=True)
#: fires stop-set-by-one-rank local-stop-decision
from lightning.pytorch.callbacks import Callback

class Deadline(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero and self.asked():
            trainer.should_stop = True
        trainer.strategy.barrier()
#: silent stop-that-is-agreed-upon
from lightning.pytorch.callbacks import Callback

class Deadline(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        stop = False
        if trainer.is_global_zero:
            stop = self.asked()
        trainer.should_stop = trainer.strategy.broadcast(stop)
#: silent stop-set-by-one-rank-and-reduced-after
from lightning.pytorch.callbacks import Callback

class Deadline(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            trainer.should_stop = True
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(trainer.should_stop, all=False)
#: silent stop-set-by-all
from lightning.pytorch.callbacks import Callback

class Deadline(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch > 3:
            trainer.should_stop = True
        if trainer.is_global_zero:
            print("done")
#: fires control-set-by-one-rank local-stop-decision
from transformers import TrainerCallback

class Deadline(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            control.should_training_stop = True
        return control
#: low fires step-that-skips-its-backward-pass handler-skips-collective|local-stop-decision
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        try:
            loss = self.net(batch)
        except RuntimeError as error:
            if "out of memory" in str(error):
                return None
            raise
        return loss

def fit(net, data):
    pl.Trainer(strategy="ddp", devices=4).fit(net, data)
#: low silent step-that-asks-before-it-skips
import lightning.pytorch as pl
import torch

class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        loss, failed = None, 0.0
        try:
            loss = self.net(batch)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            failed = 1.0
        if self.all_gather(torch.tensor(failed)).sum() > 0:
            return None
        return loss

def fit(net, data):
    pl.Trainer(strategy="ddp", devices=4).fit(net, data)
#: low silent step-that-runs-its-own-backward-pass
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        if batch["image"].numel() == 0:
            return None
        return self.net(batch)

def fit(net, data):
    pl.Trainer(strategy="ddp", devices=4).fit(net, data)
#: low silent step-of-one-of-two-optimisers
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx, optimizer_idx):
        if optimizer_idx == 0:
            return self.generator(batch)
        if optimizer_idx == 1:
            return self.discriminator(batch)

def fit(net, data):
    pl.Trainer(strategy="ddp", devices=4).fit(net, data)
#: low fires set-that-the-object-keeps unordered-collectives
import torch.distributed as dist

def reduce_all(values):
    for key in values:
        if isinstance(values[key], dict):
            reduce_all(values[key])
        else:
            dist.all_reduce(values[key])

class Sums:
    def __init__(self):
        self.names = set()

    def register(self, name):
        self.names.add(name)

    def synchronize(self):
        for name in self.names:
            reduce_all(getattr(self, name))
#: low silent set-that-is-sorted
import torch.distributed as dist

class Sums:
    def __init__(self):
        self.names = {"mean", "count"}

    def synchronize(self):
        for name in sorted(self.names):
            dist.all_reduce(getattr(self, name))
#: low fires local-rank-that-owns-parts local-rank-as-rank
import torch
import torch.distributed as dist

class Parts:
    def __init__(self, args):
        self.rank = args.local_rank
        self.world_size = dist.get_world_size()

    def is_mine(self, part):
        return part.index % self.world_size == self.rank
#: low silent local-rank-for-the-device
import torch
import torch.distributed as dist

class Parts:
    def __init__(self, args):
        self.rank = dist.get_rank()
        self.local_rank = args.local_rank
        self.world_size = dist.get_world_size()
        torch.cuda.set_device(self.local_rank)

    def is_mine(self, part):
        return part.index % self.world_size == self.rank
#: low silent local-rank-that-only-prints
import torch
import torch.distributed as dist

class Parts:
    def __init__(self, args):
        self.rank = args.local_rank
        self.world_size = dist.get_world_size()
        torch.cuda.set_device(self.rank)

    def say(self, text):
        if self.rank == 0:
            print(text)
#: low fires loader-that-packs uneven-loader
from itertools import islice

from torch.nn.parallel import DistributedDataParallel

class Packed:
    def __init__(self, data, sampler, size):
        self.data, self.sampler, self.size = data, sampler, size

    def __iter__(self):
        rows = iter(pack([self.data[i] for i in self.sampler]))
        while group := list(islice(rows, self.size)):
            yield group

def train(model, data, sampler, optimizer):
    packed = Packed(data, sampler, 8)
    model = DistributedDataParallel(model)
    for group in packed:
        model(group).backward()
        optimizer.step()
#: low silent loader-that-fills-up
from itertools import islice

from torch.nn.parallel import DistributedDataParallel

class Packed:
    def __init__(self, data, sampler, size, count):
        self.data, self.sampler, self.size, self.count = data, sampler, size, count

    def __iter__(self):
        left = self.count
        rows = iter(pack([self.data[i] for i in self.sampler]))
        while left and (group := list(islice(rows, self.size))):
            yield group
            left -= 1
        for _ in range(left):
            yield []

def train(model, data, sampler, optimizer):
    packed = Packed(data, sampler, 8, 100)
    model = DistributedDataParallel(model)
    for group in packed:
        model(group).backward()
        optimizer.step()
#: low fires parameter-named-as-the-class-that-is-called collective-under-rank-condition
import jax
from jax.experimental import multihost_utils

class ImagePipeline:
    def __call__(self, latents):
        return multihost_utils.process_allgather(latents)

def run(pipeline, latents):
    if jax.process_index() == 0:
        return pipeline(latents)
#: low silent parameter-named-as-one-of-two-classes
import jax
from jax.experimental import multihost_utils

class ImagePipeline:
    def __call__(self, latents):
        return multihost_utils.process_allgather(latents)

class TextPipeline:
    def __call__(self, text):
        return text.split()

def run(pipeline, latents):
    if jax.process_index() == 0:
        return pipeline(latents)
#: fires only-the-groups-of-the-own-rank collective-under-rank-condition|group-by-rank
import torch.distributed as dist

def build(lists):
    rank = dist.get_rank()
    for ranks in lists:
        if rank in ranks:
            own = dist.new_group(ranks)
    return own
#: silent all-groups-and-the-own-is-kept
import torch.distributed as dist

def build(lists):
    rank = dist.get_rank()
    for ranks in lists:
        group = dist.new_group(ranks)
        if rank in ranks:
            own = group
    return own
#: silent groups-that-only-members-make
import torch.distributed as dist

def build(lists):
    rank = dist.get_rank()
    for ranks in lists:
        if rank in ranks:
            own = dist.new_group(ranks, use_local_synchronization=True)
    return own
#: silent helper-that-refuses-what-nobody-gives pipe.py
import torch.distributed as dist

from send import send

def share(values):
    if is_pipeline_last_stage():
        return send(values, dist.get_rank(), get_pipeline_model_parallel_group())
    return send(None, get_pipeline_model_parallel_last_rank(), get_pipeline_model_parallel_group())
#- send.py
import torch.distributed as dist

def send(values, source, group):
    if dist.get_rank() == source:
        if values is None:
            raise ValueError("the source has nothing to send")
    found = [values]
    dist.broadcast_object_list(found, src=source, group=group)
    return found[0]
