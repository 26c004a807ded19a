import pickle
import struct

import torch
import torch.distributed as dist


def all_gather_list(data, max_size=16384):
    rank, world = dist.get_rank(), dist.get_world_size()
    size = max_size * world
    buffer = torch.zeros(size, dtype=torch.uint8, device="cuda")
    packed = pickle.dumps(data)
    header = struct.pack(">I", len(packed))
    if len(header) + len(packed) > max_size:
        raise ValueError("too much for the buffer")
    own = torch.tensor(list(header + packed), dtype=torch.uint8)
    buffer[rank * max_size : rank * max_size + own.numel()].copy_(own)
    dist.all_reduce(buffer)
    results = []
    for i in range(world):
        part = buffer[i * max_size : (i + 1) * max_size].cpu()
        n = struct.unpack(">I", bytes(part[:4].tolist()))[0]
        results.append(pickle.loads(bytes(part[4 : 4 + n].tolist())))
    return results
