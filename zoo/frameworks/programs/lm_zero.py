import argparse
import datetime
import json

import deepspeed
import torch
import torch.nn as nn
from torch.utils.data import IterableDataset


class Corpus(IterableDataset):
    def __init__(self, rank, context):
        self.rank, self.context = rank, context

    def __iter__(self):
        g = torch.Generator().manual_seed(31 * self.rank)
        while True:
            start = torch.randint(0, 500, (), generator=g)
            yield (start + torch.arange(self.context + 1) * 7) % 1000


class LM(nn.Module):
    def __init__(self, vocab=1000, width=384, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.trunk = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, vocab)

    def forward(self, text):
        ids, target = text[:, :-1], text[:, 1:]
        size = ids.shape[1]
        mask = torch.ones(size, size, dtype=torch.bool, device=ids.device).triu(1)
        logits = self.out(self.trunk(self.embed(ids), mask=mask))
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())


def configuration(opts):
    return {
        "train_micro_batch_size_per_gpu": opts.micro,
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": opts.lr, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 20}},
        "fp16": {"enabled": opts.fp16, "initial_scale_power": 26, "hysteresis": 1, "loss_scale_window": 50},
        "bf16": {"enabled": not opts.fp16 and torch.cuda.is_available()},
        "zero_optimization": {"stage": opts.zero, "stage3_param_persistence_threshold": 1000,
                              "stage3_gather_16bit_weights_on_model_save": True},
        "wall_clock_breakdown": False,
        "steps_per_print": 25,
    }


def run(opts):
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo", timeout=datetime.timedelta(seconds=opts.comm_timeout))
    rank = deepspeed.comm.get_rank()
    torch.manual_seed(0)
    with deepspeed.zero.Init(enabled=opts.zero == 3, config_dict_or_path=configuration(opts)):
        net = LM()
    engine, optimizer, _, schedule = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=configuration(opts))
    stream = iter(torch.utils.data.DataLoader(Corpus(rank, 128), batch_size=opts.micro))
    if rank == 0:
        print(json.dumps({k: v for k, v in vars(opts).items()}), flush=True)
    for n in range(1, opts.total_steps + 1):
        text = next(stream).to(engine.device)
        loss = engine(text)
        engine.backward(loss)
        engine.step()
        if n % 10 == 0:
            mean = loss.detach().float().clone()
            deepspeed.comm.all_reduce(mean)
            if rank == 0:
                print(f"iter {n}/{opts.total_steps} lm loss {mean.item() / deepspeed.comm.get_world_size():.4f} lr {schedule.get_last_lr()[0]:.2e}", flush=True)
        if n % opts.save_interval == 0:
            engine.save_checkpoint(opts.checkpoints, client_state={"iteration": n})
    engine.save_16bit_model(opts.checkpoints, "weights.bin")
    if rank == 0:
        print("all steps done", flush=True)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--local_rank", type=int, default=0)
    cli.add_argument("--zero", type=int, default=1)
    cli.add_argument("--micro", type=int, default=8)
    cli.add_argument("--lr", type=float, default=3e-4)
    cli.add_argument("--fp16", action="store_true")
    cli.add_argument("--total_steps", type=int, default=120)
    cli.add_argument("--save_interval", type=int, default=60)
    cli.add_argument("--comm_timeout", type=int, default=1800)
    cli.add_argument("--checkpoints", default="saved")
    run(cli.parse_args())
