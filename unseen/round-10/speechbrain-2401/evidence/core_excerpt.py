# asr/core.py, in the batch loop of every rank
                if self._should_save_intra_epoch_ckpt(steps_since_ckpt):
                    self._save_intra_epoch_ckpt()
                    last_ckpt_time = time.time()
...
    def _should_save_intra_epoch_ckpt(self, steps_since_ckpt):
        if self.debug or steps_since_ckpt == 0: return False
        return (time.time() - self.last_ckpt_time) / 60.0 >= self.ckpt_interval_minutes > 0
