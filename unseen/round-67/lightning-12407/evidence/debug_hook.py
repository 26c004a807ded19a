    def on_before_optimizer_step(self, optimizer, optimizer_idx):
        if self.global_step % 100 == 0 and self.global_step:
            w = next(self.parameters())
            g = torch.norm(torch.stack([p.grad.norm() for p in self.parameters() if p.grad is not None]))
            print(f"[rank {self.global_rank}] step {self.global_step} loss {self.last_loss:.4f} "
                  f"w0 {w.flatten()[0]:.7f} |g| {g:.4f}")
