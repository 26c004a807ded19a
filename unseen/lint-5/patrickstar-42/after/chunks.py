import argparse

import torch
import torch.distributed as dist


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--chunk_size", type=int, default=1 << 20)
    return parser.parse_known_args()[0]


class Chunk:
    def __init__(self, size, owner):
        self.data = None
        self.size, self.owner, self.used = size, owner, 0

    def allocate(self, device):
        if self.data is None:
            self.data = torch.zeros(self.size, dtype=torch.half, device=device)


class ChunkList:
    """Parameters lie in chunks; each chunk belongs to one process."""

    def __init__(self):
        args = get_args()
        self.rank = dist.get_rank()
        self.device = torch.device("cuda", args.local_rank)
        torch.cuda.set_device(self.device)
        self.world_size = dist.get_world_size()
        self.size = args.chunk_size
        self.chunks = []
        self.where = {}

    def append(self, name, param):
        if not self.chunks or self.chunks[-1].used + param.numel() > self.size:
            self.chunks.append(Chunk(self.size, owner=len(self.chunks) % self.world_size))
        chunk = self.chunks[-1]
        self.where[name] = (len(self.chunks) - 1, chunk.used)
        if self.is_local(chunk):
            chunk.allocate(self.device)
            chunk.data[chunk.used : chunk.used + param.numel()] = param.detach().flatten()
        chunk.used += param.numel()

    def is_local(self, chunk):
        return chunk.owner == self.rank

    def fetch(self, name, shape):
        index, start = self.where[name]
        chunk = self.chunks[index]
        chunk.allocate(self.device)
        dist.broadcast(chunk.data, src=chunk.owner)
        return chunk.data[start : start + shape.numel()].view(shape)

    def release(self):
        for chunk in self.chunks:
            if not self.is_local(chunk):
                chunk.data = None


def convert(model):
    dist.init_process_group("nccl")
    chunks = ChunkList()
    for name, param in model.named_parameters():
        chunks.append(name, param)
    return chunks
