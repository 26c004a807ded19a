    def save(self, step, *, blocking=False):
        ...
        self._async.save(state, checkpoint_id=path, process_group=self._pp_group)   # None when pp == 1
        self._last_saved = step
        dist.barrier()
        if self._is_rank0:
            self._update_latest(path)
