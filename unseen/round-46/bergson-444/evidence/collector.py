def run_with_collector_hooks(self, ...):
    for sl in tqdm(self.batches, disable=self.rank != 0, desc="Collecting gradients"):
        ...
    self.collector.teardown()          # autocorrelation.py: `if rank == 0:` process, save
    dist.all_reduce(total_processed)
