    def _log_metrics(self):
        if not self._metrics:
            return
        metrics_to_reduce = move_metrics(self._metrics, self.bookkeeping_device)
        self._metrics.clear()
        self._run_bookkeeping_op(
            self._reduce_and_pass_on_metrics, metrics_to_reduce, op_name="log_metrics",
        )
