# examples/hubert/lightning_modules.py (excerpt, our copy; + the warning)
    def training_step(self, batch: Batch, batch_idx):
        opt = self.optimizers()
        opt.zero_grad()
        with torch.cuda.amp.autocast(enabled=True):
            loss, num_frame = self._step(batch, batch_idx, "train")
        if torch.isinf(loss) or torch.isnan(loss):
            _LG.warning("batch_idx=%d loss is %s (num_frame=%d), skipping batch", batch_idx, loss.item(), num_frame)
            opt.zero_grad()
            return None

        # normalize the loss based on the sum of num_frame across all GPUs
        num_frames = self.all_gather(num_frame)
        self.log("Gathered number of frames", num_frames.float().sum(), on_step=True, on_epoch=True)
        loss *= num_frames.size(0) / num_frames.sum()
        # backward the loss and clip the gradients
        self.manual_backward(loss)
