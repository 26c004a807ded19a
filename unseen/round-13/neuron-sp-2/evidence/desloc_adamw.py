    def step(self):
        super().step()
        self.global_step += 1
        self.sync_if_needed()

    def sync_if_needed(self):
        if self.global_step % self.Kx == 0:          # Kx = 32
            dist.all_reduce(self.flat_params, op=dist.ReduceOp.AVG)
