import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

CHUNKS, BATCH, SEQ, VOCAB, WIDTH = 8, 32, 64, 1000, 256


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.body = nn.Sequential(*[nn.TransformerEncoderLayer(WIDTH, 4, 1024, dropout=0.0, batch_first=True) for _ in range(3)])

    def forward(self, ids):
        return self.body(self.tok(ids))


class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.TransformerEncoderLayer(WIDTH, 4, 1024, dropout=0.0, batch_first=True) for _ in range(3)])
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, x):
        return self.head(self.body(x))


def token_loss(logits, target):
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def data(step):
    g = torch.Generator().manual_seed(step)
    ids = torch.randint(0, VOCAB, (BATCH, SEQ + 1), generator=g)
    ids[:, 1::2] = ids[:, :-1:2]
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def train(steps, log_every=10, sync_every=25):
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(rank)
    module = (Front() if rank == 0 else Back()).to(device)
    stage = PipelineStage(module, rank, world, device)
    schedule = Schedule1F1B(stage, CHUNKS, loss_fn=token_loss)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    best = float("inf")
    for step in range(1, steps + 1):
        ids, target = data(step)
        if rank == 0:
            schedule.step(ids.to(device))
            loss = None
        else:
            parts = []
            schedule.step(target=target.to(device), losses=parts)
            loss = torch.stack(parts).mean()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 1 and step % log_every == 0:
            print(f"it {step} | loss {loss.item():.4f} | chunks {CHUNKS}", flush=True)
        if step % sync_every == 0:
            value = loss.detach().clone() if rank == 1 else torch.zeros((), device=device)
            dist.broadcast(value, src=1)
            best = min(best, value.item())
            torch.save(module.state_dict(), f"stage{rank}.pt")
            if rank == 0:
                print(f"it {step} | best loss so far {best:.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    wait = int(os.environ.get("PG_TIMEOUT_S", "1800"))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", timeout=timedelta(seconds=wait), device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    else:
        dist.init_process_group("gloo", timeout=timedelta(seconds=wait))
    train(steps)
    if dist.get_rank() == 0:
        print("pipeline finished", flush=True)
    dist.destroy_process_group()
