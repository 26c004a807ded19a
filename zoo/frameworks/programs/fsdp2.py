import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab=4096, width=512, layers=6, heads=8, length=256):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(rank, args):
    g = torch.Generator().manual_seed(1000 + rank)
    while True:
        yield torch.randint(0, 4096, (args.batch_size, 257), generator=g)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


@torch.no_grad()
def validate(model, loader, device, n=4):
    model.eval()
    total = torch.zeros((), device=device)
    for _ in range(n):
        total += loss_of(model, next(loader).to(device))
    dist.all_reduce(total, op=dist.ReduceOp.AVG if device.type == "cuda" else dist.ReduceOp.SUM)
    model.train()
    return (total / n).item()


def save(model, optimizer, step, folder):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optim": optimizer_state, "step": step}, checkpoint_id=os.path.join(folder, f"step-{step}"))


def export(model, folder):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save(state, os.path.join(folder, "consolidated.pt"))
        print(f"exported {len(state)} tensors", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=40)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--folder", default="ckpt")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("dp",))
    torch.manual_seed(0)

    model = Decoder().to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if args.compile:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader, val_loader = batches(rank, args), batches(100 + rank, args)

    for step in range(1, args.steps + 1):
        tokens = next(loader).to(device)
        loss = loss_of(model, tokens)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and rank == 0:
            print(f"step {step}/{args.steps} loss {loss.item():.4f} grad norm {norm.item():.3f}", flush=True)
        if step % args.eval_every == 0:
            val = validate(model, val_loader, device)
            if rank == 0:
                print(f"step {step} validation loss {val:.4f}", flush=True)
        if step % args.save_every == 0:
            save(model, optimizer, step, args.folder)
            if rank == 0:
                print(f"step {step} checkpoint saved", flush=True)
    export(model, args.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
