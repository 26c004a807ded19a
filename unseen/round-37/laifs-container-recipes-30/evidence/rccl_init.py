import os, torch
torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["SLURM_LOCALID"])))
torch.distributed.destroy_process_group()
