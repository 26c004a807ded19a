#: row 53 before unordered-collectives
import torch.distributed as dist

def send_buffers(model, wanted):
    for name in set(wanted) & {name for name, _ in model.named_buffers()}:
        dist.broadcast(model.get_buffer(name), src=0)
#: row 53 after
import torch.distributed as dist

def send_buffers(model, wanted):
    for name in sorted(set(wanted) & {name for name, _ in model.named_buffers()}):
        dist.broadcast(model.get_buffer(name), src=0)
#: row 54 before unordered-collectives
import torch.distributed as dist

def sync_metrics(local, extra):
    for name in set(local) | set(extra):
        dist.all_reduce(local[name])
#: row 54 after
import torch.distributed as dist

def sync_metrics(local, extra):
    for name in sorted(set(local) | set(extra)):
        dist.all_reduce(local[name])
#: row 55 before unordered-collectives
import torch.distributed as dist

def flat_all_reduce(grads):
    by_type = {}
    for kind in set(grad.type() for grad in grads):
        by_type[kind] = [grad for grad in grads if grad.type() == kind]
    for kind in by_type:
        dist.all_reduce(flatten(by_type[kind]))
#: row 55 after
from collections import OrderedDict
import torch.distributed as dist

def flat_all_reduce(grads):
    by_type = OrderedDict()
    for grad in grads:
        by_type[grad.type()] = []
    for kind in by_type:
        dist.all_reduce(flatten([grad for grad in grads if grad.type() == kind]))
#: row 56 before unordered-collectives
import torch
import torch.distributed as dist

class Rotary(torch.nn.Module):
    def __init__(self, layer_types):
        super().__init__()
        for kind in list(set(layer_types)):
            self.register_buffer(kind + "_frequencies", frequencies(kind))
#: row 56 after
import torch
import torch.distributed as dist

class Rotary(torch.nn.Module):
    def __init__(self, layer_types):
        super().__init__()
        for kind in sorted(set(layer_types)):
            self.register_buffer(kind + "_frequencies", frequencies(kind))
#: row 57 before collective-under-local-condition|local-stop-decision
import torch.distributed as dist

def load(path, state):
    if not path.exists():
        return None
    objects = [state]
    dist.broadcast_object_list(objects, src=0)
    return objects[0]
#: row 57 after
import torch.distributed as dist

def load(path, state):
    found = [path.exists() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    if not found[0]:
        return None
    objects = [state]
    dist.broadcast_object_list(objects, src=0)
    return objects[0]
#: row 58 before handler-skips-collective|local-stop-decision
import torch.distributed as dist

def fetch(store, path):
    try:
        store.download(path)
    except OSError as error:
        print(error)
        return None
    dist.barrier()
    return path
#: row 58 after
import torch
import torch.distributed as dist

def fetch(store, path):
    failed = torch.zeros(1)
    try:
        store.download(path)
    except OSError as error:
        print(error)
        failed = torch.ones(1)
    dist.all_reduce(failed, op=dist.ReduceOp.MAX)
    if failed.item() > 0:
        raise RuntimeError("some rank could not download")
    dist.barrier()
    return path
#: row 59 before handler-skips-collective|local-stop-decision
import torch.distributed as dist

def save(state, path):
    try:
        if dist.get_rank() == 0:
            write(state, path)
        dist.barrier()
    except OSError as error:
        print(error)
#: row 59 after
import torch.distributed as dist

def save(state, path):
    try:
        if dist.get_rank() == 0:
            write(state, path)
    except OSError as error:
        print(error)
    finally:
        dist.barrier()
#: row 60 before collective-under-local-condition
import numpy as np
from fairscale.nn import FullyShardedDataParallel as FSDP

class Encoder:
    def __init__(self, layers, drop):
        self.layers = [FSDP(layer) for layer in layers]
        self.drop = drop

    def forward(self, x):
        for layer in self.layers:
            if np.random.uniform() > self.drop:
                x = layer(x)
        return x
#: row 60 after
import numpy as np
from fairscale.nn import FullyShardedDataParallel as FSDP

class Encoder:
    def __init__(self, layers, drop):
        self.layers = [FSDP(layer) for layer in layers]
        self.drop = drop

    def forward(self, x):
        for layer in self.layers:
            y = layer(x)
            if np.random.uniform() > self.drop:
                x = y
        return x
#: row 61 before collective-under-local-condition
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Model:
    def __init__(self, vision, text):
        self.vision = FSDP(vision)
        self.text = FSDP(text)

    def forward(self, batch):
        hidden = self.text.embed(batch["ids"])
        if batch.get("pixels") is not None:
            hidden = merge(hidden, self.vision(batch["pixels"]))
        return self.text(hidden)
#: row 61 after
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Model:
    def __init__(self, vision, text):
        self.vision = FSDP(vision)
        self.text = FSDP(text)

    def forward(self, batch):
        hidden = self.text.embed(batch["ids"])
        pixels = batch.get("pixels")
        if pixels is None:
            pixels = blank_image(batch)
        seen = self.vision(pixels)
        hidden = merge(hidden, seen) if batch.get("pixels") is not None else hidden + 0 * seen.sum()
        return self.text(hidden)
#: row 62 before collective-under-local-condition|local-stop-decision
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Experts:
    def __init__(self, experts):
        self.experts = [FSDP(expert) for expert in experts]

    def forward(self, x, routes):
        for n, expert in enumerate(self.experts):
            rows = (routes == n).nonzero()
            if rows.numel() == 0:
                continue
            x[rows] = expert(x[rows])
        return x
#: row 62 after
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Experts:
    def __init__(self, experts):
        self.experts = [FSDP(expert) for expert in experts]

    def forward(self, x, routes):
        for n, expert in enumerate(self.experts):
            rows = (routes == n).nonzero()
            x[rows] = expert(x[rows])
        return x
#: row 63 before collective-under-local-condition|local-stop-decision
import torch
import torch.distributed as dist

def forward(tokens, mask, experts, group):
    mine = tokens[mask]
    if mine.shape[0] == 0:
        return torch.zeros_like(tokens)
    out = experts(mine)
    dist.all_reduce(out.sum(), group=group)
    return out
#: row 63 after
import torch
import torch.distributed as dist

def forward(tokens, mask, experts, group):
    mine = tokens[mask]
    out = experts(mine) if mine.shape[0] > 0 else torch.zeros_like(tokens)
    dist.all_reduce(out.sum(), group=group)
    return out
#: row 64 before collective-under-local-condition|exit-before-collective|local-stop-decision
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Detector:
    def __init__(self, backbone, head):
        self.backbone = backbone
        self.head = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(head))

    def forward(self, images, boxes):
        features = self.backbone(images)
        if len(boxes) == 0:
            return features.sum() * 0
        return self.head(features, boxes)
#: row 64 after
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Detector:
    def __init__(self, backbone, head):
        self.backbone = backbone
        self.head = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(head))

    def forward(self, images, boxes):
        features = self.backbone(images)
        if len(boxes) == 0:
            return self.head(features, dummy_box(images)) * 0
        return self.head(features, boxes)
#: row 65 before collective-under-rank-condition
from accelerate.data_loader import DataLoaderDispatcher
from accelerate import Accelerator

def batches(dataset, state):
    loader = DataLoaderDispatcher(dataset)
    if state.process_index == 0:
        main_iterator = iter(loader)
        for batch in main_iterator:
            yield batch
#: row 65 after
from accelerate.data_loader import DataLoaderDispatcher
from accelerate import Accelerator

def batches(dataset, state):
    loader = DataLoaderDispatcher(dataset)
    main_iterator = iter(loader)
    for batch in main_iterator:
        yield batch
#: row 66 before uneven-loader|loop-count-by-rank|collective-under-local-condition
import torch.distributed as dist

def log_samples(samples, writer, at):
    for n, sample in enumerate(samples.of_this_rank_loader):
        writer.add(sample)
        if n == at:
            dist.barrier()
#: row 66 after
import torch.distributed as dist

def log_samples(samples, writer, at):
    for n, sample in enumerate(samples.of_this_rank_loader):
        writer.add(sample)
    dist.barrier()
#: row 67 before collective-under-local-condition|exit-before-collective|collective-order-by-rank
from contextlib import contextmanager
import torch.distributed as dist

@contextmanager
def patched(layer):
    old = layer.forward
    layer.forward = offloaded(old)
    dist.barrier()
    yield layer
    layer.forward = old

def forward(layer, batch):
    if batch["images"].any():
        with patched(layer) as patched_layer:
            return patched_layer(batch)
    return layer(batch)
#: row 67 after
from contextlib import contextmanager
import torch.distributed as dist

@contextmanager
def patched(layer):
    old = layer.forward
    layer.forward = offloaded(old)
    yield layer
    layer.forward = old

def forward(layer, batch):
    if batch["images"].any():
        with patched(layer) as patched_layer:
            return patched_layer(batch)
    return layer(batch)
#: row 68 before collective-in-background|collective-under-rank-condition
import threading
import torch.distributed as dist

def mean_loss(metric):
    dist.all_reduce(metric)
    return metric

def show(metric, bar):
    def render():
        while bar.is_open:
            bar.write(mean_loss(metric))
    if dist.get_rank() == 0:
        threading.Thread(target=render).start()
#: row 68 after
import threading
import torch.distributed as dist

def show(value, bar):
    def render():
        while bar.is_open:
            bar.write(value)
    if dist.get_rank() == 0:
        threading.Thread(target=render).start()
#: row 69 before uneven-loader|loop-count-by-rank|collective-under-local-condition
import torchmetrics

class Evaluator:
    def __init__(self):
        self.metric = torchmetrics.Accuracy(task="binary")

    def step(self, batch):
        values = []
        for part in batch["parts"]:
            self.metric.update(part.logits, part.labels)
            values.append(self.metric.compute())
        return values
#: row 69 after
import torchmetrics

class Evaluator:
    def __init__(self):
        self.metric = torchmetrics.Accuracy(task="binary")

    def step(self, batch):
        for part in batch["parts"]:
            self.metric.update(part.logits, part.labels)
        return self.metric.compute()
#: row 70 before group-by-rank
import torch.distributed as dist

def node_group(per_node):
    node = dist.get_rank() // per_node
    return dist.new_group(list(range(node * per_node, (node + 1) * per_node)))
#: row 70 after
import torch.distributed as dist

def node_group(per_node):
    mine = None
    for node in range(dist.get_world_size() // per_node):
        group = dist.new_group(list(range(node * per_node, (node + 1) * per_node)))
        if node == dist.get_rank() // per_node:
            mine = group
    return mine
#: row 71 before all-send-first
import torch.distributed as dist

def swap(mine, theirs):
    peer = 1 - dist.get_rank()
    dist.send(mine, peer)
    dist.recv(theirs, peer)
#: row 71 after
import torch.distributed as dist

def swap(mine, theirs):
    peer = 1 - dist.get_rank()
    ops = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
#: row 72 before all-send-first
import torch.distributed as dist

def pass_on(out, into):
    rank, size = dist.get_rank(), dist.get_world_size()
    first = dist.isend(out, (rank + 1) % size)
    first.wait()
    second = dist.irecv(into, (rank - 1) % size)
    second.wait()
#: row 72 after
import torch.distributed as dist

def pass_on(out, into):
    rank, size = dist.get_rank(), dist.get_world_size()
    ops = [
        dist.P2POp(dist.isend, out, (rank + 1) % size),
        dist.P2POp(dist.irecv, into, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
#: row 73 before collective-order-by-rank|collective-under-local-condition
import torch.distributed as dist

def exchange(inputs, outputs, row_group, column_group):
    if inputs.is_cuda and inputs.sum().item() > 0:
        dist.all_to_all_single(outputs, inputs, group=row_group)
        dist.all_reduce(outputs, group=column_group)
    else:
        dist.all_reduce(outputs, group=column_group)
        dist.all_to_all_single(outputs, inputs, group=row_group)
#: row 73 after
import torch.distributed as dist

def exchange(inputs, outputs, row_group, column_group):
    dist.all_to_all_single(outputs, inputs, group=row_group)
    dist.all_reduce(outputs, group=column_group)
#: row 74 before destroyed-while-in-use
import torch.distributed as dist

def last_step(schedule, x, rank):
    if rank == 0:
        dist.isend(x, 1)
    else:
        dist.recv(x, 0)
    dist.destroy_process_group()
#: row 74 after
import torch.distributed as dist

def last_step(schedule, x, rank):
    if rank == 0:
        dist.isend(x, 1)
    else:
        dist.recv(x, 0)
    dist.barrier()
    dist.destroy_process_group()
#: row 75 before no-set-device
import torch.distributed as dist

def setup(options):
    dist.init_process_group("nccl")
    dist.barrier()

setup({})
#: row 75 after
import os
import torch
import torch.distributed as dist

def setup(options):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    dist.barrier()

setup({})
#: row 76 before same-device-on-all-ranks
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(model):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return DDP(model.cuda(0))
#: row 76 after
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(model):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return DDP(model.cuda())
#: row 77 before local-rank-as-rank
import os
import torch

def start():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=torch.cuda.device_count())
#: row 77 after
import os
import torch

def start():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("nccl", rank=rank, world_size=size)
#: row 78 before non-contiguous-tensor
import torch.distributed as dist

def gather_columns(out, x, group):
    columns = x.permute(1, 0)
    dist.all_gather_into_tensor(out, columns, group=group)
#: row 78 after
import torch.distributed as dist

def gather_columns(out, x, group):
    columns = x.permute(1, 0).contiguous()
    dist.all_gather_into_tensor(out, columns, group=group)
#: row 79 before decided-by-one-rank
import torch
import torch.distributed as dist

def skip(loss, limit):
    flag = torch.tensor(float(loss > limit))
    dist.broadcast(flag, src=0)
    return flag.item() > 0
#: row 79 after
import torch
import torch.distributed as dist

def skip(loss, limit):
    flag = torch.tensor(float(loss > limit))
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return flag.item() > 0
#: row 80 before seed-equal-on-all-ranks
import torch
import torch.distributed as dist

def restore(path):
    states = [torch.load(path)["rng"] if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(states, src=0)
    torch.set_rng_state(states[0])
#: row 80 after
import torch
import torch.distributed as dist

def restore(path):
    states = torch.load(path)["rng_of_all_ranks"]
    torch.set_rng_state(states[dist.get_rank()])
