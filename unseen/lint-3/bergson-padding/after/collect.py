import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence


def collate(rows, device):
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    x = pad_sequence(ids, batch_first=True)
    longest = torch.tensor(x.size(1), device=device)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    x = torch.nn.functional.pad(x, (0, int(longest) - x.size(1)))
    return x


@torch.no_grad()
def collect(model, loader, device):
    out = []
    world = dist.get_world_size()
    for rows in loader:
        x = collate(rows, device).to(device)
        hidden = model(x).last_hidden_state
        parts = [torch.empty_like(hidden) for _ in range(world)]
        dist.all_gather(parts, hidden)
        out.append(torch.cat(parts).cpu())
    return out
