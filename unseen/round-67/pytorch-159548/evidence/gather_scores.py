import os, torch, torch.distributed as dist

dist.init_process_group("nccl")
r, w = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(r)

# every rank: (id, score) rows of its own items
rows = torch.tensor([[100 * r + i, 1000 * r + 7 * i] for i in range(4)], device="cuda")
ids = rows[:, 0]
print(f"rank {r} local ids {ids.tolist()} stride {ids.stride()}", flush=True)

out = [torch.zeros(4, dtype=ids.dtype, device="cuda") for _ in range(w)] if r == 0 else None
dist.gather(ids, out, dst=0)
if r == 0:
    for i, o in enumerate(out):
        print("gathered from", i, o.tolist())

lst = [torch.zeros(4, dtype=ids.dtype, device="cuda") for _ in range(w)]
dist.all_gather(lst, ids.clone())
if r == 0:
    print("all_gather of a clone", [t.tolist() for t in lst])
dist.destroy_process_group()
