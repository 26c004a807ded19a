import torch.distributed as dist

_TP = None
_TP_SRC = None


def build(tensor, pipeline):
    global _TP, _TP_SRC
    world = dist.get_world_size()
    assert world % (tensor * pipeline) == 0
    for start in range(0, world, tensor):
        ranks = list(range(start, start + tensor))
        pg = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            _TP, _TP_SRC = pg, start


def tp_group():
    return _TP


def tp_src():
    return _TP_SRC
