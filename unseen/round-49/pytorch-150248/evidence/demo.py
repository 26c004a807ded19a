def demo(rank, world):
    os.environ["MASTER_ADDR"] = "localhost"; os.environ["MASTER_PORT"] = "12911"
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    t = make_metric(rank)          # comes from the config of the rank
    print(f"Rank {rank} before all_reduce: {t} {t.dtype}", flush=True)
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    print(f"Rank {rank} after all_reduce: {t}", flush=True)
    dist.destroy_process_group()
mp.spawn(demo, args=(3,), nprocs=3, join=True)
