import jax


def profiler_enabled(config):
    """Whether this process should write a trace."""
    return bool(config.enable_profiler) and jax.process_index() == 0


class Profiler:
    def __init__(self, config):
        self.config = config
        self.running = False

    def start(self):
        if profiler_enabled(self.config):
            jax.profiler.start_trace(self.config.trace_dir)
            self.running = True

    def stop(self):
        if self.running:
            jax.profiler.stop_trace()
            self.running = False
