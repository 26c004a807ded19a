dist.init_process_group(backend='nccl')
rank = dist.get_rank(); world_size = dist.get_world_size()
device = torch.device(f'cuda:{os.environ["LOCAL_RANK"]}')
torch.cuda.set_device(device)
pg = dist.new_group(ranks=list(range(world_size)))
inp = torch.tensor([rank * 10 + i for i in range(world_size)], dtype=torch.float32, device=device)
out = torch.zeros(world_size, dtype=torch.float32, device=device)

def timed(name, fn, n=4):
    for i in range(n):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        if rank == 0:
            print(f"{name} iteration {i}: {1e3*(time.perf_counter()-t0):.3f} ms")

timed("all_to_all_single", lambda: dist.all_to_all_single(out, inp, group=pg))
timed("barrier", lambda: dist.barrier())
