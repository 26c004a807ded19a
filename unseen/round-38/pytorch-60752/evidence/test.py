import argparse
import torch
import torch.distributed as dist

ap = argparse.ArgumentParser()
ap.add_argument("--local_rank", type=int)
args = ap.parse_args()

torch.cuda.set_device(args.local_rank)
dist.init_process_group("nccl")

dist.barrier()
print(f"rank {dist.get_rank()} passed the barrier")
