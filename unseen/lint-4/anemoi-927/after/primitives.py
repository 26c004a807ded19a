import torch
import torch.distributed as dist


def gather_field(field, group):
    world = dist.get_world_size(group)
    size = torch.tensor([field.shape[-2]], device=field.device)
    sizes = [torch.empty_like(size) for _ in range(world)]
    dist.all_gather(sizes, size, group=group)
    longest = int(torch.stack(sizes).max())
    padded = torch.nn.functional.pad(field, (0, 0, 0, longest - field.shape[-2]))
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded.contiguous(), group=group)
    return torch.cat([part[..., : int(n), :] for part, n in zip(parts, sizes)], dim=-2)


def split_points(points, group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    return torch.tensor_split(points, world, dim=-2)[rank]


def forward(model, points, group):
    mine = split_points(points, group)
    return gather_field(model(mine), group)
