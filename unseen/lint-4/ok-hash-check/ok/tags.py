import hashlib

import torch
import torch.distributed as dist


def check_tag(tag, fails):
    digest = hashlib.sha1(tag.encode())
    own = torch.ByteTensor([b for b in digest.digest()]).flatten().cuda()
    lowest, highest = own.clone(), own.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    is_same = bool(torch.all(lowest == own)) and bool(torch.all(highest == own))
    if fails:
        assert is_same, "ranks name the checkpoint differently"
    elif not is_same:
        print("ranks name the checkpoint differently")
