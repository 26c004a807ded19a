import argparse
import os
from datetime import timedelta

import deepspeed
import torch
import torch.nn as nn
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(512, generator=g)
        sample = {"input": x, "target": torch.sin(x)}
        return sample["input"], sample["target"]


class Net(nn.Module):
    def __init__(self, width=1024, depth=4):
        super().__init__()
        self.inp = nn.Linear(512, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 512)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        for layer in self.mid:
            x = x + torch.relu(layer(x))
        return self.out(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--save_dir", default="ds_ckpt")
    args = parser.parse_args()
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=args.timeout))
    rank = torch.distributed.get_rank()
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": args.stage},
        "gradient_clipping": 1.0,
        "steps_per_print": 20,
    }
    model = Net()
    engine, _, loader, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config,
                                                training_data=Pairs(8192))
    step = 0
    while step < args.steps:
        for x, target in loader:
            x, target = x.to(engine.device, torch.bfloat16), target.to(engine.device, torch.bfloat16)
            loss = nn.functional.mse_loss(engine(x).float(), target.float())
            engine.backward(loss)
            engine.step()
            step += 1
            if step % 20 == 0 and rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 60 == 0:
                engine.save_checkpoint(args.save_dir, tag=f"step{step}")
            if step >= args.steps:
                break
    torch.distributed.barrier()
    if rank == 0:
        print("training complete", flush=True)


if __name__ == "__main__":
    main()
