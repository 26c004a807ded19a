#: fires rank-of-a-nested-configuration collective-under-rank-condition
import torch.distributed as dist

def save(cfg, state):
    if cfg.distributed.rank == 0:
        write(state)
        dist.barrier()
#: fires rank-of-a-dict collective-under-rank-condition
import torch.distributed as dist

def save(info, state):
    if info["rank"] == 0:
        write(state)
        dist.barrier()
#: fires not-the-rank collective-under-rank-condition
import torch.distributed as dist

def save(state):
    if not dist.get_rank():
        write(state)
        dist.barrier()
#: fires rank-in-a-tuple collective-under-rank-condition
import torch.distributed as dist

def save(args, state):
    if args.local_rank in (-1, 0):
        write(state)
        dist.barrier()
#: silent waits-on-both-sides-of-a-tuple
import torch.distributed as dist

def load(args, make):
    if args.local_rank not in (-1, 0):
        dist.barrier()
    data = make()
    if args.local_rank == 0:
        dist.barrier()
    return data
#: fires any-other-rank-leaves exit-before-collective
import torch.distributed as dist

def save(rank, state):
    if rank:
        return
    write(state)
    dist.barrier()
#: fires rank-is-matched collective-under-rank-condition
import torch.distributed as dist

def save(rank, state):
    match rank:
        case 0:
            write(state)
            dist.barrier()
        case _:
            pass
#: fires assertion-of-the-first-rank collective-under-rank-condition
import torch.distributed as dist

def check(rank, x):
    assert rank != 0 or is_sane(x)

def is_sane(x):
    dist.all_reduce(x)
    return x.isfinite().all()
#: fires chief-of-the-context collective-under-rank-condition
import torch.distributed as dist

class Context:
    def __init__(self):
        self.is_chief = dist.get_rank() == 0

class Job:
    def __init__(self):
        self.context = Context()

    def finish(self, state):
        if self.context.is_chief:
            write(state)
            dist.barrier()
#: fires helper-of-another-name collective-under-rank-condition job.py
from cluster import am_i_first, wait_for_all

def finish(state):
    if am_i_first():
        write(state)
        wait_for_all()
#- cluster.py
import os
import torch.distributed as dist

def am_i_first():
    return int(os.environ.get("RANK", "0")) == 0

def wait_for_all():
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
#: fires asynchronous-helper collective-under-rank-condition
import torch.distributed as dist

class Server:
    async def reload(self, path):
        if dist.get_rank() == 0:
            await self.fetch(path)
            await self.meet()

    async def meet(self):
        dist.barrier()
#: fires closure-in-a-loop collective-under-rank-condition|exit-before-collective
import torch.distributed as dist

def train(loader, step, rank):
    def report(value):
        dist.all_reduce(value)
        return value.item()

    for i, batch in enumerate(loader):
        loss = step(batch)
        if i % 10 == 0 and rank == 0:
            print(report(loss))
#: fires parent-saves-with-a-barrier collective-under-rank-condition
import torch
import torch.distributed as dist

class Base:
    def save(self, path):
        torch.save(self.state, path)
        dist.barrier()

class Child(Base):
    def save(self, path):
        if dist.get_rank() == 0:
            super().save(path)
#: fires list-of-sums-on-the-first-rank collective-under-rank-condition
import torch.distributed as dist

def summed(x):
    dist.all_reduce(x)
    return x.item()

def report(values, rank):
    if rank == 0:
        print([summed(v) for v in values])
#: fires half-of-a-manager collective-under-rank-condition
import torch.distributed as dist

class MainFirst:
    def __enter__(self):
        self.is_main = dist.get_rank() == 0
        if not self.is_main:
            dist.barrier()

    def __exit__(self, *exc):
        return False
#: silent both-halves-of-a-manager
import torch.distributed as dist

class MainFirst:
    def __enter__(self):
        self.is_main = dist.get_rank() == 0
        if not self.is_main:
            dist.barrier()

    def __exit__(self, *exc):
        if self.is_main:
            dist.barrier()
        return False
#: fires trainer-saves-where-the-arguments-say-so collective-under-rank-condition|sharded-call-under-rank-condition
import deepspeed
from transformers import Trainer, TrainingArguments

def main(args: TrainingArguments, model, data):
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    if args.local_rank == 0:
        trainer.save_model(args.output_dir)
#: fires trainer-evaluates-on-process-zero collective-under-rank-condition
from transformers import Trainer

def main(args, model, data, held_out):
    trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=held_out)
    trainer.train()
    if trainer.is_world_process_zero():
        print(trainer.evaluate())
#: fires module-logs-with-sync-on-zero collective-under-rank-condition
import lightning.pytorch as pl

class Net(pl.LightningModule):
    def validation_step(self, batch, i):
        loss = self.loss(batch)
        if self.trainer.is_global_zero:
            self.log("val", loss, sync_dist=True)
#: fires module-saves-on-its-rank collective-under-rank-condition
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def on_train_epoch_end(self):
        if self.global_rank == 0:
            self.trainer.save_checkpoint("last.ckpt")
#: fires engine-saves-on-its-rank collective-under-rank-condition
import deepspeed

class Runner:
    def __init__(self, model, config):
        self.engine, _, _, _ = deepspeed.initialize(model=model, config=config)

    def save(self, tag):
        if self.engine.global_rank == 0:
            self.engine.save_checkpoint("out", tag)
#: fires megatron-saves-on-rank-0 collective-under-rank-condition
import torch
from megatron.training.checkpointing import save_checkpoint

def finish(iteration, model, optimizer, scheduler):
    if torch.distributed.get_rank() == 0:
        save_checkpoint(iteration, model, optimizer, scheduler)
#: fires metric-computed-on-the-first-rank collective-under-rank-condition
import torch
import torch.distributed as dist
import torchmetrics

class Evaluator:
    def __init__(self, n):
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=n).cuda()

    def run(self, model, loader):
        for x, y in loader:
            self.accuracy.update(model(x), y)
        if dist.get_rank() == 0:
            print("accuracy", self.accuracy.compute().item())
#: fires state-of-all-shards-on-main sharded-call-under-rank-condition|collective-under-rank-condition
import deepspeed
from accelerate import Accelerator

def save(accelerator: Accelerator, model, path):
    if accelerator.is_main_process:
        unwrapped = accelerator.unwrap_model(model)
        unwrapped.save_pretrained(path, state_dict=accelerator.get_state_dict(model))
#: fires weights-of-a-wrapped-attribute-on-zero sharded-call-under-rank-condition|collective-under-rank-condition
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)

    def save(self, path):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict()}, path)
#: fires full-tensors-on-the-first-rank sharded-call-under-rank-condition|collective-under-rank-condition
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def export(model, path):
    model = fully_shard(model)
    if dist.get_rank() == 0:
        weights = {n: p.full_tensor().cpu() for n, p in model.named_parameters()}
        torch.save(weights, path)
#: fires first-rank-exits exit-before-collective
import sys
import torch.distributed as dist

def validate_config(cfg, rank):
    if rank == 0 and not cfg.path.exists():
        print("no data")
        sys.exit(0)
    dist.barrier()
#: fires while-the-first-rank-waits collective-under-rank-condition|loop-count-by-rank
import torch.distributed as dist

def watch(queue, rank):
    while rank == 0 and queue:
        queue.pop()
        dist.barrier()
#: fires rank-from-slurm-as-a-text collective-under-rank-condition
import os
import torch.distributed as dist

def finish(state):
    if os.environ["SLURM_PROCID"] == "0":
        write(state)
        dist.barrier()
#: fires rank-of-a-partial collective-under-rank-condition
import functools
import torch.distributed as dist

def save(rank, state):
    if rank == 0:
        write(state)
        dist.barrier()

def main(state):
    run = functools.partial(save, dist.get_rank())
    run(state)
#: fires group-rank-and-the-world collective-under-rank-condition
import torch.distributed as dist

def sync(x, dp_group):
    if dist.get_rank(dp_group) == 0:
        dist.all_reduce(x)
#: silent group-rank-and-another-group
import torch.distributed as dist

def sync(x, dp_group, tp_group):
    if dist.get_rank(dp_group) == 0:
        dist.all_reduce(x, group=tp_group)
#: fires mesh-coordinate-and-the-world collective-under-rank-condition
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def report(x, dp, tp):
    mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
    if mesh["dp"].get_local_rank() == 0:
        dist.all_reduce(x)
    return x
#: fires accelerator-of-the-object-prints-gathered collective-under-rank-condition
from accelerate import Accelerator

class Loop:
    def __init__(self):
        self.acc = Accelerator()

    def show(self, loss):
        if self.acc.is_local_main_process:
            print(self.acc.gather(loss).mean().item())
#: fires callback-of-trl-generates-on-main collective-under-rank-condition|exit-before-collective
from accelerate.utils import gather_object
from transformers import TrainerCallback

class Completions(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer

    def on_log(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        rows = gather_object(self.sample())
        print(len(rows))
#: fires node-leader-broadcasts-to-the-world collective-under-rank-condition
import os
import torch.distributed as dist

def share(path):
    box = [None]
    if int(os.environ["LOCAL_RANK"]) == 0:
        box = [read(path)]
        dist.broadcast_object_list(box, src=0)
    return box[0]
#: silent converter-of-a-model-made-there convert.py
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as sd
from models import ModelConfig

def convert(path, out):
    model = ModelConfig.load(path).build(init_device="meta")
    weights = sd.get_model_state_dict(model)
    write(weights, out)

def after_training(path, out):
    if dist.get_rank() == 0:
        convert(path, out)
    dist.barrier()
#- deepspeed.json
{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
#: fires model-prepared-there-is-sharded sharded-call-under-rank-condition|collective-under-rank-condition train.py
from accelerate import Accelerator

def main(cfg, make):
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(*make(cfg))
    train(model, optimizer)
    if accelerator.is_main_process:
        weights = accelerator.get_state_dict(model)
        write(weights, cfg.out)
#- deepspeed.json
{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
