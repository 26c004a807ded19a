import io
import pickle

import torch
import torch.distributed as dist


def _to_bytes(obj, device):
    buffer = io.BytesIO()
    pickle.Pickler(buffer).dump(obj)
    storage = torch.ByteStorage.from_buffer(buffer.getvalue())
    return torch.ByteTensor(storage).to(device)


def _from_bytes(tensor):
    return pickle.Unpickler(io.BytesIO(tensor.cpu().numpy().tobytes())).load()


def broadcast_object(obj, group, src=0):
    device = torch.cuda.current_device()
    source = dist.get_global_rank(group, src)
    if dist.get_rank(group) == src:
        payload = _to_bytes(obj, device)
        size = torch.tensor([payload.numel()], dtype=torch.long, device=device)
        dist.broadcast(size, source, group=group)
        dist.broadcast(payload, source, group=group)
        return obj
    size = torch.zeros(1, dtype=torch.long, device=device)
    dist.broadcast(size, source, group=group)
    payload = torch.empty(int(size.item()), dtype=torch.uint8, device=device)
    dist.broadcast(payload, source, group=group)
    return _from_bytes(payload)


def allgather_object(obj, group):
    """Returns the objects of all members of the group, in their order."""
    device = torch.cuda.current_device()
    payload = _to_bytes(obj, device)
    count = dist.get_world_size(group)
    size = torch.tensor([payload.numel()], dtype=torch.long, device=device)
    sizes = torch.empty(count, dtype=torch.long, device=device)
    dist.all_gather_into_tensor(sizes, size, group=group)
    sizes = sizes.tolist()
    longest = max(sizes)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: payload.numel()] = payload
    gathered = torch.empty(longest * count, dtype=torch.uint8, device=device)
    dist.all_gather_into_tensor(gathered, padded, group=group)
    return [_from_bytes(part[:n]) for part, n in zip(gathered.chunk(count), sizes)]
