# oslo/torch/distributed/parallel_context.py (installed version)
    @classmethod
    def from_slurm(cls, host, port, ...):
        rank = int(os.environ["SLURM_PROCID"])
        world_size = int(os.environ["SLURM_NPROCS"])
        local_rank = int(os.environ["SLURM_LOCALID"])
        local_world_size = int(os.environ.get("SLURM_JOB_NUMNODES", 1))
    ...
    def set_device(self):
        self.local_rank = self.get_global_rank() % self.local_world_size
        torch.cuda.set_device(self.local_rank)
