    def validation_epoch_end(self, outputs):
        preds = torch.cat([o["boxes"] for o in outputs])      # one row per detected box
        print(f"[rank {self.global_rank}] validation_epoch_end: preds {preds.shape}")
        preds = self.all_gather(preds)
        self.log("val/map", self.metric(preds.flatten(0, 1)), rank_zero_only=True)
