# fit_mp.py, lines 22-36
def worker(rank, world_size):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    print(f"[worker {rank}] pid {os.getpid()} CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} torch {torch.__version__} device_count={torch.cuda.device_count()}")
    dist.init_process_group("nccl", init_method="tcp://localhost:29517",
                            world_size=world_size, rank=rank)
    model = Net().cuda()
    model = DDP(model)
