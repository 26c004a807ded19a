    def log_step(self, prefix, loss):
        print(f"rank={self.global_rank}, step={self.global_step} prefix={prefix} [log_step(...)], loss={loss.item()}")
        self.log(f"{prefix}/loss", loss, on_step=(prefix == "train"), on_epoch=True, rank_zero_only=True)

    def validation_step(self, batch, batch_idx):
        self.log_step("val", self.compute_loss(batch))

ckpt = ModelCheckpoint(dirpath=run_dir, monitor="val/loss", mode="min", save_top_k=3, filename="{step}-{val/loss:.3f}")
trainer = Trainer(strategy="ddp", devices=2, callbacks=[ckpt], val_check_interval=30)
