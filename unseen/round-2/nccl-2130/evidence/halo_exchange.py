import os, torch, torch.distributed as dist
rank = int(os.environ['RANK']); torch.cuda.set_device(rank)
dist.init_process_group('nccl')
peer = 1 - rank
x = torch.full((1,), float(rank), device='cuda'); y = torch.empty(1, device='cuda')
def log(m): print(f'[rank{rank}] {m}', flush=True)

# phase 1: symmetric
for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]): w.wait()
torch.cuda.synchronize(); log('phase 1 done')

# phase 2
if rank == 0:
    ops = [dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)]
else:
    ops = [dist.P2POp(dist.irecv, y, 0)]
works = dist.batch_isend_irecv(ops); log(f'phase 2 posted {len(ops)} op(s)')
for w in works: w.wait()
torch.cuda.synchronize(); log('phase 2 done')
dist.destroy_process_group()
