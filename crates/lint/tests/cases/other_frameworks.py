#: fires keras-callback-evaluates-on-the-first-worker collective-under-rank-condition|exit-before-collective
import horovod.keras as hvd
import tensorflow as tf

class LogAverage(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if hvd.rank() != 0:
            return
        mean = hvd.allreduce(tf.constant(logs["loss"]))
        print(epoch, mean)
#: low fires mpi-workers-leave-when-their-queue-is-empty local-stop-decision|collective-under-local-condition|uneven-loader
from mpi4py import MPI

def solve(cells, tol):
    comm = MPI.COMM_WORLD
    for it in range(1000):
        residual = max(cell.relax() for cell in cells)
        if residual < tol:
            break
        comm.Barrier()
    return it
#: low silent mpi-workers-leave-together
from mpi4py import MPI

def solve(cells, tol):
    comm = MPI.COMM_WORLD
    for it in range(1000):
        residual = comm.allreduce(max(cell.relax() for cell in cells), op=MPI.MAX)
        if residual < tol:
            break
        comm.Barrier()
    return it
#: low fires mpi-gather-of-unequal-arrays size-by-rank
import numpy as np
from mpi4py import MPI

def collect(comm, particles, box):
    inside = particles[np.where(particles < box)]
    everything = np.empty(comm.Get_size() * len(inside))
    comm.Allgather(inside, everything)
    return everything
#: fires mpi-broadcast-of-the-root-alone collective-under-rank-condition
from mpi4py import MPI

comm = MPI.COMM_WORLD

def read_config(path):
    config = None
    if comm.rank == 0:
        with open(path) as f:
            config = parse(f)
        config = comm.bcast(config, root=0)
    return config
#: fires detectron-evaluator-synchronises-on-the-main-process collective-under-rank-condition|exit-before-collective
from detectron2.utils import comm

class CustomEvaluator:
    def reset(self):
        self._predictions = []

    def evaluate(self):
        if not comm.is_main_process():
            return {}
        comm.synchronize()
        everything = comm.gather(self._predictions, dst=0)
        return {"n": sum(map(len, everything))}
#: fires mmengine-hook-broadcasts-on-master collective-in-rank-zero-function|collective-under-rank-condition
from mmengine.dist import master_only, broadcast
from mmengine.hooks import Hook

class SeedHook(Hook):
    @master_only
    def before_run(self, runner):
        seed = runner.seed_tensor()
        broadcast(seed, src=0)
        runner.set_seed(seed.item())
#: fires ignite-metric-on-rank-0 collective-under-rank-condition
import ignite.distributed as idist

def log_validation(engine, values):
    if idist.get_rank() == 0:
        mean = idist.all_reduce(values) / idist.get_world_size()
        print(engine.state.epoch, mean)
#: low fires ppo-minibatches-depend-on-the-rollout uneven-loader|loop-count-by-rank|collective-under-local-condition
import torch
import deepspeed

class PPOTrainer:
    def __init__(self, actor, config):
        self.actor, _, _, _ = deepspeed.initialize(model=actor, config=config)

    def train_on(self, rollouts, micro_batch):
        kept = [r for r in rollouts if r.reward > self.floor]
        for start in range(0, len(kept), micro_batch):
            loss = self.loss(kept[start:start + micro_batch])
            self.actor.backward(loss)
            self.actor.step()
#: low fires ppo-stops-by-its-own-kl local-stop-decision|collective-under-local-condition
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Updater:
    def __init__(self, policy, target_kl):
        self.policy = DDP(policy)
        self.target_kl = target_kl

    def update(self, memory, epochs):
        for epoch in range(epochs):
            kls = []
            for mb in memory.minibatches():
                ratio, kl = self.evaluate(mb)
                loss = -(ratio * mb.advantages).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                kls.append(kl.item())
            if sum(kls) / len(kls) > 1.5 * self.target_kl:
                break
#: low fires env-steps-until-done local-stop-decision|collective-under-local-condition|uneven-loader
import torch
import torch.distributed as dist

def play(env, model):
    state = env.reset()
    done = False
    while not done:
        action = model(state)
        dist.all_reduce(action)
        state, reward, done, info = env.step(action)
#: low fires rejected-samples-skip-the-update collective-under-local-condition|local-stop-decision
import torch
from accelerate import Accelerator

def train(accelerator, model, optimizer, loader, judge):
    for batch in loader:
        answers = judge.filter(batch["answers"])
        if len(answers) < 2:
            accelerator.print("too few answers")
            continue
        loss = model(answers).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
#: low fires graph-partition-without-training-nodes collective-under-local-condition|local-stop-decision|exit-before-collective
import dgl
import torch
import torch.distributed as dist

def evaluate(model, g, features, labels):
    nodes = dgl.distributed.node_split(g.ndata["val_mask"], g.get_partition_book())
    if len(nodes) == 0:
        return 0.0
    out = model(g, features)
    hits = (out[nodes].argmax(1) == labels[nodes]).sum()
    dist.all_reduce(hits)
    return hits.item()
#: low fires speech-batches-by-duration uneven-loader|loop-count-by-rank
import torch
from torch.utils.data import DataLoader, Sampler

class DurationSampler(Sampler):
    def __init__(self, durations, max_seconds, rank, world):
        self.durations = durations[rank::world]
        self.max_seconds = max_seconds

    def __iter__(self):
        batch, total = [], 0.0
        for i, d in enumerate(self.durations):
            if total + d > self.max_seconds:
                yield batch
                batch, total = [], 0.0
            batch.append(i)
            total += d
        yield batch

def train(model, dataset, durations, rank, world, optimizer):
    loader = DataLoader(dataset, batch_sampler=DurationSampler(durations, 120, rank, world))
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
#: low fires validation-of-the-remainder uneven-loader|loop-count-by-rank
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

def validate(model, dataset, rank, world):
    mine = Subset(dataset, range(rank, len(dataset), world))
    total = torch.zeros(1, device="cuda")
    for batch in DataLoader(mine, batch_size=1):
        loss = model(batch)
        dist.all_reduce(loss)
        total += loss
    return total
#: low silent validation-reduced-once
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

def validate(model, dataset, rank, world):
    mine = Subset(dataset, range(rank, len(dataset), world))
    total = torch.zeros(1, device="cuda")
    for batch in DataLoader(mine, batch_size=1):
        total += model(batch)
    dist.all_reduce(total)
    return total
#: fires cleanup-of-the-main-process-waits collective-under-rank-condition
import shutil
import torch.distributed as dist

class Workspace:
    def __init__(self, path):
        self.path = path
        self.is_owner = dist.get_rank() == 0

    def __enter__(self):
        if self.is_owner:
            self.path.mkdir()
        dist.barrier()
        return self.path

    def __exit__(self, *exc):
        if self.is_owner:
            shutil.rmtree(self.path)
            dist.barrier()
#: low fires barrier-of-the-cleanup-after-a-failure handler-skips-collective
import torch.distributed as dist

def main(cfg):
    dist.init_process_group("nccl")
    trainer = build(cfg)
    try:
        metrics = trainer.fit()
        dist.all_reduce(metrics)
    finally:
        dist.barrier()
        dist.destroy_process_group()
#: low fires upload-fails-before-the-barrier handler-skips-collective|local-stop-decision
import torch.distributed as dist

class Uploader:
    def push(self, client, path):
        if dist.get_rank() == 0:
            try:
                client.upload(path)
            except ConnectionError as e:
                print("upload failed", e)
                return
        dist.barrier()
#: low fires tokenisation-error-on-one-rank handler-skips-collective|local-stop-decision|collective-under-local-condition
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Scorer:
    def __init__(self, model):
        self.model = FSDP(model)

    def score(self, texts):
        out = []
        for text in texts:
            try:
                ids = self.tokenize(text)
            except ValueError:
                out.append(None)
                continue
            out.append(self.model(ids))
        return out
#: low fires two-groups-in-two-orders collective-order-by-rank|collective-under-rank-condition
import torch.distributed as dist

def sync(grads, stats, rank, dp_group, tp_group):
    if rank % 2 == 0:
        dist.all_reduce(grads, group=dp_group)
        dist.all_reduce(stats, group=tp_group)
    else:
        dist.all_reduce(stats, group=tp_group)
        dist.all_reduce(grads, group=dp_group)
#: low fires hooks-fire-in-the-order-of-the-graph collective-in-background|unordered-collectives
import threading
import torch.distributed as dist

class AsyncSaver:
    def save(self, state, path):
        self.thread = threading.Thread(target=self._save, args=(state, path))
        self.thread.start()

    def _save(self, state, path):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, state)
        write(parts, path)
#: fires pipeline-stages-reduce-in-the-world collective-under-rank-condition
import torch
import torch.distributed as dist

class Stage:
    def __init__(self, stage_id, num_stages):
        self.stage_id = stage_id
        self.num_stages = num_stages

    def report(self, loss):
        if self.stage_id == self.num_stages - 1:
            dist.all_reduce(loss)
            loss /= dist.get_world_size()
        return loss
#: low fires sends-before-its-neighbour-receives all-send-first
import torch
import torch.distributed as dist

def exchange_halo(field, rank, world):
    left, right = (rank - 1) % world, (rank + 1) % world
    ghost = torch.empty_like(field[:, :1])
    dist.send(field[:, -1:].contiguous(), dst=right)
    dist.recv(ghost, src=left)
    return ghost
#: low silent exchange-in-one-batch
import torch
import torch.distributed as dist

def exchange_halo(field, rank, world):
    left, right = (rank - 1) % world, (rank + 1) % world
    ghost = torch.empty_like(field[:, :1])
    ops = [dist.P2POp(dist.isend, field[:, -1:].contiguous(), right), dist.P2POp(dist.irecv, ghost, left)]
    for request in dist.batch_isend_irecv(ops):
        request.wait()
    return ghost
#: low fires transposed-weights-are-gathered non-contiguous-tensor
import torch
import torch.distributed as dist

def gather_columns(weight, group):
    columns = weight.t()
    parts = [torch.empty_like(columns) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, columns, group=group)
    return torch.cat(parts).t()
#: low fires slice-of-columns-is-broadcast non-contiguous-tensor
import torch
import torch.distributed as dist

def share_head(weight, k):
    head = weight.transpose(0, 1)[:k]
    dist.broadcast(head, src=0)
    return head
#: low fires padding-to-the-longest-of-the-own-batch size-by-rank
import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence

def gather_texts(batch, world):
    padded = pad_sequence([torch.tensor(x) for x in batch["ids"]], batch_first=True)
    parts = [torch.zeros_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat(parts)
#: low fires counts-of-labels-are-reduced size-by-rank
import torch
import torch.distributed as dist

def class_balance(labels):
    counts = torch.bincount(labels)
    dist.all_reduce(counts)
    return counts / counts.sum()
#: low silent counts-of-known-labels-are-reduced
import torch
import torch.distributed as dist

def class_balance(labels, n_classes):
    counts = torch.bincount(labels, minlength=n_classes)
    dist.all_reduce(counts)
    return counts / counts.sum()
#: low fires unique-ids-are-gathered size-by-rank
import torch
import torch.distributed as dist

def all_ids(ids):
    own = torch.unique(ids)
    out = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(out, own)
    return torch.unique(torch.cat(out))
#: low fires list-of-results-becomes-a-tensor size-by-rank
import torch
import torch.distributed as dist

def mean_length(samples, tokenizer):
    lengths = torch.tensor([len(tokenizer(s)) for s in samples], device="cuda")
    out = [torch.zeros_like(lengths) for _ in range(dist.get_world_size())]
    dist.all_gather(out, lengths)
    return torch.cat(out).float().mean()
#: low fires temporary-folder-of-each-rank collective-under-local-condition|local-data-path|local-stop-decision
import os
import tempfile
import torch.distributed as dist

def collect(results, n):
    folder = tempfile.mkdtemp()
    save(results, os.path.join(folder, f"{dist.get_rank()}.pkl"))
    dist.barrier()
    if len(os.listdir(folder)) < n:
        return None
    dist.barrier()
    return folder
#: low fires cuda-graphs-are-captured-by-free-memory local-stop-decision|collective-under-local-condition|loop-count-by-rank|uneven-loader
import torch
import torch.distributed as dist

class Runner:
    def capture(self, sizes):
        for size in sizes:
            free, total = torch.cuda.mem_get_info()
            if free < self.needed(size):
                break
            self.graphs[size] = self.capture_one(size)
            dist.barrier()
#: low fires number-of-blocks-by-free-memory size-by-rank|loop-count-by-rank|uneven-loader|collective-under-local-condition
import torch
import torch.distributed as dist

class Cache:
    def allocate(self, block_bytes, group):
        free, _ = torch.cuda.mem_get_info()
        n_blocks = int(free * 0.9) // block_bytes
        for n in range(n_blocks):
            self.blocks.append(self.new_block(n))
            dist.barrier(group)
#: low fires moe-capacity-from-the-own-tokens size-by-rank
import torch
import torch.distributed as dist

class Dispatcher:
    def dispatch(self, tokens, expert_ids, n_experts, group):
        counts = torch.bincount(expert_ids, minlength=n_experts)
        send = counts.tolist()
        out = torch.empty_like(tokens)
        dist.all_to_all_single(out, tokens, input_split_sizes=send, output_split_sizes=send, group=group)
        return out
#: low silent moe-exchanges-the-counts-first
import torch
import torch.distributed as dist

class Dispatcher:
    def dispatch(self, tokens, expert_ids, n_experts, group):
        counts = torch.bincount(expert_ids, minlength=n_experts)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=group)
        send, receive = counts.tolist(), theirs.tolist()
        out = tokens.new_empty(sum(receive), tokens.size(1))
        dist.all_to_all_single(out, tokens, receive, send, group=group)
        return out
#: fires wandb-table-of-gathered-rows-on-main collective-under-rank-condition
import wandb
from accelerate import Accelerator
from accelerate.utils import gather_object

def log_table(accelerator: Accelerator, rows, step):
    if accelerator.is_main_process:
        table = wandb.Table(columns=["prompt", "answer"], data=gather_object(rows))
        accelerator.log({"samples": table}, step=step)
#: fires lambda-of-the-main-process collective-under-rank-condition
import torch.distributed as dist

def show(stats, rank):
    total = sum_over_ranks(stats) if rank == 0 else None
    print(total)

def sum_over_ranks(stats):
    dist.all_reduce(stats)
    return stats
#: fires logging-and-a-collective-in-one-condition collective-under-rank-condition
import torch.distributed as dist

def agree(flag):
    dist.all_reduce(flag)
    return flag.item() > 0

def maybe_print(rank, flag):
    if rank == 0 and agree(flag):
        print("some rank failed")
#: silent collective-before-the-rank-in-one-condition
import torch.distributed as dist

def agree(flag):
    dist.all_reduce(flag)
    return flag.item() > 0

def maybe_print(rank, flag):
    if agree(flag) and rank == 0:
        print("some rank failed")
#: low fires loop-over-own-shards-saves-with-a-barrier loop-count-by-rank|exit-before-collective|collective-under-rank-condition
import torch
import torch.distributed as dist

def convert(files, out):
    rank, world = dist.get_rank(), dist.get_world_size()
    for i, name in enumerate(files):
        if i % world != rank:
            continue
        torch.save(convert_one(name), out / name)
        dist.barrier()
