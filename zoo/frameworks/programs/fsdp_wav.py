import functools
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset, DistributedSampler

DEFAULTS = {"steps": 120, "batch": 8, "width": 384, "layers": 4, "log": 10, "eval": 40, "ckpt": 60, "timeout_s": 1800, "clips": 6400, "out": "model"}


class Clips(Dataset):
    def __init__(self, count, seed=0):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        pitch = i % 30
        wave = torch.sin(torch.linspace(0, 6.28 * (pitch + 1), 4096)) + 0.2 * torch.randn(4096, generator=g)
        return wave, pitch


class Listener(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.frames = nn.Conv1d(1, width, 64, stride=32)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True) for _ in range(layers)])
        self.pitch = nn.Linear(width, 30)

    def forward(self, wave):
        x = self.frames(wave[:, None]).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.pitch(x.mean(1))


class Job:
    def __init__(self, conf):
        self.conf = conf
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
        torch.manual_seed(5)
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})
        self.model = FSDP(Listener(conf["width"], conf["layers"]).to(self.device), auto_wrap_policy=policy, use_orig_params=True,
                          sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=self.device if self.device.type == "cuda" else None)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.train_data = Clips(conf["clips"])
        self.sampler = DistributedSampler(self.train_data)
        self.valid = DataLoader(Clips(128, 10**6), batch_size=conf["batch"], sampler=DistributedSampler(Clips(128), shuffle=False))

    def say(self, text):
        if self.rank == 0:
            print(time.strftime("%H:%M:%S"), text, flush=True)

    def loss(self, wave, pitch):
        return nn.functional.cross_entropy(self.model(wave.to(self.device)), pitch.to(self.device))

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        hits = torch.zeros(2, device=self.device)
        for wave, pitch in self.valid:
            guess = self.model(wave.to(self.device)).argmax(1)
            hits += torch.stack([(guess == pitch.to(self.device)).sum(), torch.tensor(len(pitch), device=self.device)])
        self.model.train()
        dist.all_reduce(hits)
        return (hits[0] / hits[1]).item()

    def save(self, step):
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
            weights = self.model.state_dict()
        if self.rank == 0:
            os.makedirs(self.conf["out"], exist_ok=True)
            torch.save(weights, f"{self.conf['out']}/step{step}.pt")
            self.say(f"saved step {step}")

    def train(self):
        step, epoch = 0, 0
        while step < self.conf["steps"]:
            self.sampler.set_epoch(epoch)
            for wave, pitch in DataLoader(self.train_data, self.conf["batch"], sampler=self.sampler, num_workers=1, drop_last=True):
                step += 1
                loss = self.loss(wave, pitch)
                loss.backward()
                self.model.clip_grad_norm_(2.0)
                self.optim.step()
                self.optim.zero_grad()
                if step % self.conf["log"] == 0:
                    self.say(f"step {step} of {self.conf['steps']}: {loss.item():.4f}")
                if step % self.conf["eval"] == 0:
                    value = self.accuracy()
                    self.say(f"step {step}: accuracy {value:.3f}")
                if step % self.conf["ckpt"] == 0:
                    self.save(step)
                if step >= self.conf["steps"]:
                    break
            epoch += 1
        self.say("training over")


if __name__ == "__main__":
    conf = dict(DEFAULTS)
    for word in sys.argv[1:]:
        key, _, value = word.partition("=")
        conf[key] = yaml.safe_load(value)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(timeout=timedelta(seconds=conf["timeout_s"]), backend="nccl" if torch.cuda.is_available() else "gloo")
    Job(conf).train()
    dist.destroy_process_group()
