import torch
import torch.distributed as dist

dist.init_process_group(backend="nccl")
torch.cuda.set_device(dist.get_rank())
rank = dist.get_rank()
print(f"Rank: {rank}, World size: {dist.get_world_size()}", flush=True)
if rank % 2 != 0:
    t = torch.tensor([1], dtype=torch.float32).cuda()
else:
    t = torch.tensor([2], dtype=torch.bfloat16).cuda()
dist.all_reduce(t)
torch.cuda.synchronize()
print(f"Rank: {rank}, t: {t.item()}")
