import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
r = dist.get_rank(); torch.cuda.set_device(r)
if r == 0:
    t = torch.ones(3, device="cuda")
    ops = [dist.P2POp(dist.isend, t, 1)]
else:
    t = torch.zeros(5, device="cuda")
    ops = [dist.P2POp(dist.irecv, t, 0)]
for w in dist.batch_isend_irecv(ops):
    w.wait()
print(f"rank {r} waited", flush=True)
print(f"rank {r} {t}", flush=True)
