import os, torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
if dist.get_rank() == 0:
    print("rank0: before isend", flush=True)
    w = dist.isend(x, dst=1)
    print("rank0: after isend", flush=True)     # never printed
    y = x * 2
    print("rank0: did other work", flush=True)
else:
    print("rank1: doing something else", flush=True)
    for _ in range(10000):
        torch.mm(torch.rand(512, 512, device="cuda"), torch.rand(512, 512, device="cuda"))
    print("rank1: done", flush=True)
dist.barrier()
