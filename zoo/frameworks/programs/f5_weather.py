"""A Fourier neural operator that steps weather fields forward; accelerate with gradient accumulation and an average of the weights."""
import argparse
import json
import os
import time
from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, InitProcessGroupKwargs, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = 4


class Weather(Dataset):
    def __init__(self, n, size, seed):
        self.n, self.size, self.seed = n, size, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 65537 + i)
        spectrum = torch.fft.rfft2(torch.randn(FIELDS, self.size, self.size, generator=g))
        k = torch.fft.fftfreq(self.size)[:, None] ** 2 + torch.fft.rfftfreq(self.size)[None] ** 2
        field = torch.fft.irfft2(spectrum * torch.exp(-400 * k), s=(self.size, self.size)) * 6
        wind = torch.randint(-3, 4, (2,), generator=g).tolist()
        return {"now": field, "next": 0.95 * torch.roll(field, wind, (1, 2)) + 0.05 * field.flip(0)}


class Spectral(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(2, width, width, modes, modes, 2) / width)

    def forward(self, x):
        m = self.modes
        f = torch.fft.rfft2(x)
        out = torch.zeros_like(f)
        w = torch.view_as_complex(self.weight)
        out[..., :m, :m] = torch.einsum("bixy,ioxy->boxy", f[..., :m, :m], w[0])
        out[..., -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[..., -m:, :m], w[1])
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Operator(nn.Module):
    def __init__(self, width, modes, layers):
        super().__init__()
        self.inp, self.out = nn.Conv2d(FIELDS, width, 1), nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GELU(), nn.Conv2d(2 * width, FIELDS, 1))
        self.spectral = nn.ModuleList(Spectral(width, modes) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, padding_mode="circular") for _ in range(layers))

    def forward(self, x):
        h = self.inp(x)
        for spectral, mix in zip(self.spectral, self.mix):
            h = h + nn.functional.gelu(spectral(h) + mix(h))
        return x + self.out(h)


class Tracker:
    def __init__(self, accelerator, folder):
        self.main = accelerator.is_main_process
        os.makedirs(folder, exist_ok=True)
        self.path, self.began = os.path.join(folder, "metrics.jsonl"), time.time()

    def log(self, step, **values):
        if self.main:
            row = {"step": step, **{k: round(v, 5) for k, v in values.items()}, "t": round(time.time() - self.began, 1)}
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
            print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    errors = []
    for batch in loader:
        guess = model(batch["now"])
        errors.append(accelerator.gather_for_metrics((guess - batch["next"]).pow(2).mean((1, 2, 3))))
    model.train()
    return torch.cat(errors).mean().sqrt().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--days", type=int, default=6000)
    p.add_argument("--size", type=int, default=96)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--validate-every", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    count = torch.cuda.device_count()
    if 0 < count < int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
        os.environ["NCCL_HOSTID"] = "n" + os.environ["RANK"]
        os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % count)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, cpu=count == 0, dataloader_config=DataLoaderConfiguration(even_batches=True),
                              kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=args.timeout))])
    set_seed(8)
    model = Operator(args.width, 10, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(Weather(args.days, args.size, 1), args.batch_size, shuffle=True, num_workers=2)
    valid = DataLoader(Weather(100, args.size, 2), args.batch_size, num_workers=1)
    model, optimizer, loader, valid = accelerator.prepare(model, optimizer, loader, valid)
    tracker = Tracker(accelerator, "runs")
    accelerator.print(f"{accelerator.num_processes} processes, {len(loader)} batches an epoch, {args.accumulate} batches a step", flush=True)
    step, average = 0, None
    while step < args.steps:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(batch["now"]), batch["next"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            step += 1
            weights = [w.detach() for w in model.parameters()]
            average = [w.clone() for w in weights] if average is None else average
            torch._foreach_lerp_(average, weights, 0.01)
            if step == 1 or step % args.log_every == 0:
                mean = accelerator.reduce(loss.detach(), "mean")
                tracker.log(step, loss=mean.item())
            if step % args.validate_every == 0:
                tracker.log(step, rmse=validate(accelerator, model, valid))
                accelerator.save_state(f"runs/state-{step}")
            if step >= args.steps:
                break
    accelerator.wait_for_everyone()
    accelerator.print("done", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
