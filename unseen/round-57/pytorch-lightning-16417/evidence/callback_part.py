class EvaluationCallback(pl.Callback):
    ...
    @rank_zero_only
    def on_train_epoch_end(self, trainer, pl_module) -> None:
        global_step = trainer.global_step
        if global_step % self.evaluate_step_frequency == 0:
            ...
            for track in self.mus.tracks:
                sep_wavs = self.separator.separate(audio, pl_module)   # forwards through the model
                ...
            pl_module.log("sdr", np.nanmedian(sdrs), sync_dist=True)
