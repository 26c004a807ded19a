import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class DistributedTrainer:
    """PPO with one simulator a worker; slow workers cut their rollout short."""

    SHORT = 0.25

    def __init__(self, policy, envs, storage, optimizer, store, config):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.policy = policy.to(self.device)
        self.ddp = DistributedDataParallel(self.policy, device_ids=[self.device.index])
        self.envs, self.storage, self.optimizer = envs, storage, optimizer
        self.done = dist.PrefixStore("rollouts", store)
        self.config = config
        if self.rank == 0:
            self.done.set("count", "0")
        dist.barrier()

    def _too_slow(self, step):
        if step < self.config.num_steps * self.SHORT:
            return False
        return int(self.done.get("count")) > self.config.sync_fraction * self.size

    @torch.no_grad()
    def _collect(self):
        self.policy.eval()
        for step in range(self.config.num_steps):
            value, action, log_prob, hidden = self.policy.act(self.storage.last())
            observation, reward, finished = self.envs.step(action)
            self.storage.insert(observation, hidden, action, log_prob, value, reward, finished)
            if self._too_slow(step):
                break
        self.done.add("count", 1)
        return step + 1

    def _update(self):
        self.policy.train()
        total = 0.0
        for _ in range(self.config.epochs):
            # always num_mini_batches, whatever the length of the rollout
            for batch in self.storage.mini_batches(self.config.num_mini_batches):
                loss = self.ddp(batch)
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_norm)
                self.optimizer.step()
                total += loss.item()
        return total

    def train(self):
        frames = 0
        for update in range(self.config.num_updates):
            steps = self._collect()
            loss = self._update()
            stats = torch.tensor([steps, loss], device=self.device)
            dist.all_reduce(stats)
            frames += int(stats[0].item())
            if self.rank == 0:
                self.done.set("count", "0")
                print(f"update {update} frames {frames} loss {stats[1].item() / self.size:.4f}")
            self.storage.after_update()
