import torch
import torch.distributed as dist
import torch.nn.functional as F


def _gather_equal(tensor, group, size):
    out = list(torch.zeros([size, *tensor.shape], dtype=tensor.dtype, device=tensor.device))
    dist.all_gather(out, tensor, group)
    return out


def gather_tensors(tensor, group=None):
    """The tensors of all ranks; they may differ in size but not in the number of dimensions."""
    if not dist.is_available() or not dist.is_initialized():
        return [tensor]
    tensor = tensor.contiguous()
    size = dist.get_world_size(group)
    if tensor.ndim == 0:
        return _gather_equal(tensor, group, size)

    own_shape = torch.tensor(tensor.shape, device=tensor.device)
    shapes = torch.stack(_gather_equal(own_shape, group, size))
    largest = shapes.max(dim=0).values
    if torch.equal(largest, shapes.min(dim=0).values):
        return _gather_equal(tensor, group, size)

    missing = (largest - own_shape).tolist()
    padding = [p for m in reversed(missing) for p in (0, m)]
    padded = _gather_equal(F.pad(tensor, padding), group, size)
    return [t[tuple(slice(int(n)) for n in shape)] for t, shape in zip(padded, shapes)]
