def run(rank, dtype):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    if rank == 0:
        t = torch.arange(10, dtype=dtype, device="cuda")
    else:
        t = torch.zeros(10, device="cuda")
    dist.broadcast(t, src=0)
    torch.cuda.synchronize()
    print(rank, t)
