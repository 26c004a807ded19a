import copy
import logging
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger(__name__)


class Trainable:
    """A model with its training, on one process a GPU."""

    def __init__(self, model, num_epochs=30, batch_size=64, lr=5e-4, seed=0):
        self.model = model
        self.num_epochs, self.batch_size, self.lr, self.seed = num_epochs, batch_size, lr, seed
        self.num_procs = max(1, torch.cuda.device_count())

    def train(self, train_data, val_data):
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = "8888"
        context = mp.get_context("spawn")
        results = context.Queue()
        procs = [context.Process(target=self._do_train, args=(rank, results, train_data, val_data))
                 for rank in range(self.num_procs)]
        for proc in procs:
            proc.start()
        state = results.get()
        self.model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        for proc in procs:
            proc.join()

    def _loader(self, data, rank, shuffle):
        sampler = DistributedSampler(data, num_replicas=self.num_procs, rank=rank, shuffle=shuffle)
        return DataLoader(data, batch_size=self.batch_size, sampler=sampler,
                          num_workers=2, pin_memory=True)

    def _do_train(self, rank, results, train_data, val_data):
        dist.init_process_group("nccl", rank=rank, world_size=self.num_procs)
        random.seed(self.seed)
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)
        torch.cuda.set_device(rank)
        model = DDP(self.model.cuda(rank), device_ids=[rank])
        optimizer = torch.optim.Adam(model.parameters(), lr=self.lr)
        train_loader = self._loader(train_data, rank, shuffle=True)
        val_loader = self._loader(val_data, rank, shuffle=False)
        best, best_state = -1.0, None
        for epoch in range(self.num_epochs):
            train_loader.sampler.set_epoch(epoch)
            self._train_epoch(model, train_loader, optimizer, rank)
            accuracy = self._validate_epoch(model, val_loader, rank)
            if rank == 0:
                log.info("epoch %d accuracy %.2f%%", epoch, 100 * accuracy)
                if accuracy > best:
                    best, best_state = accuracy, copy.deepcopy(model.module.state_dict())
        if rank == 0:
            results.put({k: v.cpu().numpy() for k, v in best_state.items()})
        dist.barrier()
        dist.destroy_process_group()

    def _train_epoch(self, model, loader, optimizer, rank):
        model.train()
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs.cuda(rank)), labels.cuda(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def _validate_epoch(self, model, loader, rank):
        model.eval()
        counts = torch.zeros(2, device=f"cuda:{rank}")
        for inputs, labels in loader:
            hits = model.module(inputs.cuda(rank)).argmax(1) == labels.cuda(rank)
            counts[0] += hits.sum()
            counts[1] += hits.numel()
        dist.all_reduce(counts)
        return (counts[0] / counts[1]).item()
