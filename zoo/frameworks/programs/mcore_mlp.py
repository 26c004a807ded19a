import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding, vocab_parallel_cross_entropy
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB = 4096


def config(args):
    return ModelParallelConfig(tensor_model_parallel_size=args.tensor_parallel, params_dtype=torch.float32, use_cpu_initialization=True,
                               perform_initialization=True, gradient_accumulation_fusion=False, sequence_parallel=False)


class MixerBlock(nn.Module):
    def __init__(self, cfg, width, tokens):
        super().__init__()
        init = nn.init.xavier_normal_
        self.norm_t, self.norm_c = nn.LayerNorm(tokens), nn.LayerNorm(width)
        self.tokens = nn.Linear(tokens, tokens)
        self.up = ColumnParallelLinear(width, 4 * width, config=cfg, init_method=init, gather_output=False)
        self.down = RowParallelLinear(4 * width, width, config=cfg, init_method=init, bias=True, input_is_parallel=True, skip_bias_add=False)

    def forward(self, x):
        x = x + self.tokens(self.norm_t(x.transpose(1, 2))).transpose(1, 2)
        hidden, _ = self.up(self.norm_c(x))
        out, _ = self.down(torch.nn.functional.gelu(hidden))
        return x + out


class Mixer(nn.Module):
    def __init__(self, args):
        super().__init__()
        cfg = config(args)
        init = nn.init.xavier_normal_
        self.embedding = VocabParallelEmbedding(VOCAB, args.hidden, init_method=init, config=cfg)
        self.blocks = nn.ModuleList([MixerBlock(cfg, args.hidden, args.seq_length) for _ in range(args.blocks)])
        self.norm = nn.LayerNorm(args.hidden)
        self.head = ColumnParallelLinear(args.hidden, VOCAB, config=cfg, init_method=init, bias=False, gather_output=False)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits, _ = self.head(self.norm(x))
        return vocab_parallel_cross_entropy(logits.float(), labels).mean()


def global_grad_norm(model):
    total = torch.zeros((), device=DEVICE)
    for p in model.parameters():
        if getattr(p, "tensor_model_parallel", False) or mpu.get_tensor_model_parallel_rank() == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=mpu.get_tensor_model_parallel_group())
    return total.sqrt()


def batch_for(iteration, args):
    draw = torch.Generator().manual_seed(args.seed + iteration)
    text = torch.randint(0, VOCAB, (args.micro_batch_size, args.seq_length), generator=draw)
    return text.to(DEVICE), ((text * 3 + 1) % VOCAB).to(DEVICE)


def write_checkpoint(model, iteration, args):
    name = f"{args.save}/iter_{iteration:07d}/mp_rank_{mpu.get_tensor_model_parallel_rank():02d}"
    os.makedirs(name, exist_ok=True)
    torch.save({"model": model.state_dict(), "iteration": iteration}, name + "/model_optim_rng.pt")
    dist.barrier(group=mpu.get_tensor_model_parallel_group())


def pretrain(args):
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    model = Mixer(args).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in range(1, args.train_iters + 1):
        tokens, labels = batch_for(iteration, args)
        optimizer.zero_grad()
        loss = model(tokens, labels)
        loss.backward()
        norm = global_grad_norm(model)
        optimizer.step()
        if iteration % args.log_interval == 0:
            if rank == 0:
                print(f"[iter {iteration:6d}] loss {loss.item():.5f} | grad norm {norm.item():.4f} | tp {args.tensor_parallel}", flush=True)
        if iteration % args.save_interval == 0:
            write_checkpoint(model, iteration, args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--seq-length", type=int, default=128)
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--train-iters", type=int, default=200)
    parser.add_argument("--log-interval", type=int, default=20)
    parser.add_argument("--save-interval", type=int, default=100)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--distributed-timeout-seconds", type=int, default=1800)
    parser.add_argument("--save", default="checkpoints")
    args = parser.parse_args()
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", timeout=timedelta(seconds=args.distributed_timeout_seconds))
    mpu.initialize_model_parallel(tensor_model_parallel_size=args.tensor_parallel,
                                  distributed_timeout_minutes=args.distributed_timeout_seconds / 60)
    pretrain(args)
    if dist.get_rank() == 0:
        print("done with training", flush=True)
    dist.destroy_process_group()
