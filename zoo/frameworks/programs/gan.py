import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as Parallel

ROUNDS = int(os.environ.get("ROUNDS", "400"))
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def log(*words):
    print(time.strftime("[%H:%M:%S]"), f"({RANK})", *words, flush=True)


def generator():
    return nn.Sequential(nn.Linear(64, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 784), nn.Tanh())


def critic():
    return nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(512, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))


def digits(n, device):
    centre = torch.randint(0, 10, (n, 1), device=device)
    return torch.tanh(torch.randn(n, 784, device=device) * 0.2 + torch.sin(torch.arange(784, device=device) * (centre + 1) / 40))


class Gan:
    def __init__(self, device):
        wrap = dict(device_ids=[device.index]) if device.type == "cuda" else {}
        self.device = device
        self.g = Parallel(generator().to(device), broadcast_buffers=False, **wrap)
        self.d = Parallel(critic().to(device), broadcast_buffers=False, **wrap)
        self.opt_g = torch.optim.Adam(self.g.parameters(), 2e-4, betas=(0.5, 0.99))
        self.opt_d = torch.optim.Adam(self.d.parameters(), 2e-4, betas=(0.5, 0.99))

    def train_critic(self, real):
        fake = self.g(torch.randn(len(real), 64, device=self.device)).detach()
        score = self.d(torch.cat([real, fake]))
        target = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)]).to(self.device)
        loss = F.binary_cross_entropy_with_logits(score, target)
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item(), ((score > 0) == (target > 0.5)).float().mean().item()

    def train_generator(self, n):
        score = self.d(self.g(torch.randn(n, 64, device=self.device)))
        loss = F.softplus(-score).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()


def main():
    local = int(os.environ.get("LOCAL_RANK", RANK))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=int(os.environ.get("TIMEOUT", "1800"))))
    torch.manual_seed(100 + RANK)
    gan = Gan(device)
    accuracy = 0.5
    for n in range(1, ROUNDS + 1):
        real = digits(128, device)
        d_loss, accuracy = gan.train_critic(real)
        g_loss = gan.train_generator(128)
        if n % 40 == 0:
            shown = torch.tensor([d_loss, g_loss, accuracy], device=device)
            dist.all_reduce(shown)
            if RANK == 0:
                log("round %d critic %.3f generator %.3f accuracy %.2f" % (n, *(shown / WORLD).tolist()))
        if n % 200 == 0:
            if RANK == 0:
                torch.save({"g": gan.g.module.state_dict(), "d": gan.d.module.state_dict()}, "gan.pt")
            dist.barrier()
    log("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
