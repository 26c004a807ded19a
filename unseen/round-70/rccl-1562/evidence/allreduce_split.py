import os, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
r = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(r)
x = torch.randn(8192, 4096, dtype=torch.bfloat16, device="cuda")
a, b = x.chunk(2)
def timed(fn, n=100):
    for _ in range(20): fn()
    torch.cuda.synchronize(); dist.barrier(); t = time.perf_counter()
    for _ in range(n): fn()
    torch.cuda.synchronize(); return (time.perf_counter() - t) / n * 1e3
for i in range(4):
    t1 = timed(lambda: dist.all_reduce(x))
    t2 = timed(lambda: (dist.all_reduce(a), dist.all_reduce(b)))
    if r == 0: print(i, f"full {t1:.3f} ms   half+half {t2:.3f} ms")
