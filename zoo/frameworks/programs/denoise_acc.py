import argparse
import json
import os
import time
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.tracking import GeneralTracker, on_main_process
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class JsonlTracker(GeneralTracker):
    name = "jsonl"
    requires_logging_directory = False

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.file = None

    @property
    def tracker(self):
        return self.file

    @on_main_process
    def store_init_configuration(self, values):
        self.file = open(self.path, "a")
        self.file.write(json.dumps({"config": values}) + "\n")

    @on_main_process
    def log(self, values, step=None, **kwargs):
        self.file.write(json.dumps({"step": step, **values}) + "\n")
        self.file.flush()


class Latents(Dataset):
    def __init__(self, size, first=0):
        self.size, self.first = size, first

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.first + i)
        return {"latent": torch.randn(8, 16, 16, generator=g), "t": torch.rand((), generator=g)}


class Denoiser(nn.Module):
    def __init__(self, c=96):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, c), nn.SiLU(), nn.Linear(c, c))
        self.first, self.last = nn.Conv2d(8, c, 3, padding=1), nn.Conv2d(c, 8, 3, padding=1)
        self.mid = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1) for _ in range(4)])

    def forward(self, x, t):
        h = self.first(x) + self.time(t[:, None])[:, :, None, None]
        for conv in self.mid:
            h = h + torch.nn.functional.silu(conv(h))
        return self.last(h)


def diffusion_loss(model, batch):
    noise = torch.randn_like(batch["latent"])
    t = batch["t"]
    noisy = batch["latent"] * (1 - t)[:, None, None, None] + noise * t[:, None, None, None]
    return nn.functional.mse_loss(model(noisy, t), noise)


def validate(acc, model, loader):
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in loader:
            losses.append(diffusion_loss(model, batch))
    model.train()
    return acc.reduce(torch.stack(losses).mean(), reduction="mean").item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--max_train_steps", type=int, default=100)
    p.add_argument("--grad_accum", type=int, default=4)
    p.add_argument("--validate_every", type=int, default=40)
    p.add_argument("--checkpoint_every", type=int, default=50)
    p.add_argument("--ddp_timeout", type=int, default=1800)
    p.add_argument("--images", type=int, default=8000)
    opt = p.parse_args()
    acc = Accelerator(gradient_accumulation_steps=opt.grad_accum, log_with=JsonlTracker("metrics.jsonl"),
                      project_config=ProjectConfiguration(project_dir="exp"),
                      kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=opt.ddp_timeout))])
    set_seed(100 + acc.process_index)
    net = Denoiser()
    optim = torch.optim.AdamW(net.parameters(), 1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, opt.max_train_steps)
    train = DataLoader(Latents(opt.images), 8, shuffle=True, num_workers=1, drop_last=True)
    val = DataLoader(Latents(256, 10**7), 16)
    net, optim, train, val, sched = acc.prepare(net, optim, train, val, sched)
    acc.init_trackers("denoise", config=vars(opt))
    acc.print(f"{acc.num_processes} processes, {sum(q.numel() for q in net.parameters())} parameters", flush=True)
    update, micro = 0, 0
    while update < opt.max_train_steps:
        for batch in train:
            micro += 1
            with acc.accumulate(net):
                loss = diffusion_loss(net, batch)
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(net.parameters(), 1.0)
                optim.step()
                sched.step()
                optim.zero_grad()
            if not acc.sync_gradients:
                continue
            update += 1
            if update % 10 == 0:
                mean = acc.gather(loss.detach()[None]).mean().item()
                acc.log({"train_loss": mean, "lr": sched.get_last_lr()[0]}, step=update)
                acc.print(f"update {update} loss {mean:.4f}", flush=True)
            if update % opt.validate_every == 0:
                value = validate(acc, net, val)
                acc.log({"val_loss": value}, step=update)
                acc.print(f"update {update} val {value:.4f}", flush=True)
            if update % opt.checkpoint_every == 0:
                acc.save_state(f"exp/update-{update}")
            if update >= opt.max_train_steps:
                break
    acc.wait_for_everyone()
    if acc.is_main_process:
        torch.save(acc.unwrap_model(net).state_dict(), "denoiser.pt")
    acc.end_training()
    acc.print("bye", flush=True)


if __name__ == "__main__":
    main()
