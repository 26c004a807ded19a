log.info("device: %s, driver %s", torch.cuda.get_device_name(), driver_version())
job = clusterscope.get_job()
job.set_torch_distributed_env_from_slurm()   # RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, CUDA_VISIBLE_DEVICES=SLURM_LOCALID
device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else local_rank)
