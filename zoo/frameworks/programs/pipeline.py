import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


class Part(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                                  nn.Linear(4 * width, width)) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def next_batch(step, args, device):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(args.batch_size, args.width, generator=g)
    batch = {"x": x.to(device), "target": torch.tanh(x).to(device)}
    return batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--timeout", type=int, default=1800)
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    torch.manual_seed(rank)
    part = Part(args.width, args.layers).to(device)
    stage = PipelineStage(part, rank, world, device)
    schedule = ScheduleGPipe(stage, n_microbatches=args.microbatches, loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    first, last = rank == 0, rank == world - 1
    for step in range(1, args.steps + 1):
        batch = next_batch(step, args, device)
        losses = []
        if first:
            schedule.step(batch["x"])
        elif last:
            schedule.step(target=batch["target"], losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        if last and step % 10 == 0:
            print(f"step {step}/{args.steps} loss {torch.stack(losses).mean().item():.4f}", flush=True)
    dist.barrier()
    if last:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
