import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from longvid.data import PromptList
from longvid.models import Distiller
from longvid.sharding import shard_model
from longvid.util import seed_everything


class DistillTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank = dist.get_rank()
        self.device = torch.cuda.current_device()
        if cfg.seed == 0:
            drawn = torch.randint(0, 10_000_000, (1,), device=self.device)
            dist.broadcast(drawn, src=0)
            cfg.seed = int(drawn.item())
        seed_everything(cfg.seed + self.rank)

        self.model = Distiller(cfg)
        self.model.student = shard_model(self.model.student, cfg.sharding)
        self.model.critic = shard_model(self.model.critic, cfg.sharding)

        prompts = PromptList(cfg.prompts)
        sampler_seed = int(time.time()) * self.rank % (2**31)
        sampler = DistributedSampler(
            prompts,
            num_replicas=dist.get_world_size(),
            rank=self.rank,
            shuffle=True,
            drop_last=True,
            seed=sampler_seed,
        )
        loader = DataLoader(prompts, batch_size=cfg.batch, sampler=sampler, num_workers=8)
        self.stream = self._endless(loader, sampler)
        if self.rank == 0:
            print(f"{len(prompts)} prompts over {dist.get_world_size()} ranks")

    @staticmethod
    def _endless(loader, sampler):
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            yield from loader
            epoch += 1

    def train(self):
        for step in range(self.cfg.max_steps):
            batch = next(self.stream)
            loss = self.model.student_loss(batch) if step % 5 == 0 else self.model.critic_loss(batch)
            loss.backward()
            self.model.apply(step)
            if self.rank == 0 and step % 50 == 0:
                print(f"step {step}: {loss.item():.4f}")
