import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from tqdm import tqdm

RANK0 = jax.process_index() == 0


class Stats:
    def __init__(self, samples):
        self._samples = samples  # this process's part

    def get(self):
        """Mean and error of the mean over all processes."""
        every = multihost_utils.process_allgather(self._samples)
        every = jnp.asarray(every).reshape(-1)
        return float(every.mean()), float(every.std() / jnp.sqrt(every.size))


def error_and_scale(stats):
    mean, err = stats.get()
    return err, abs(mean)


def to_precision(state, ops, rtol, max_iter=50, verbose=True):
    """Samples until all observables are known well enough."""
    bar = tqdm(total=max_iter, disable=not (verbose and RANK0))
    stats = [Stats(state.local_values(op)) for op in ops]
    for it in range(max_iter):
        worst = max(e / max(s, 1e-12) for e, s in map(error_and_scale, stats))
        bar.update(1)
        if worst < rtol:
            break
        state.sample()
        stats = [Stats(jnp.concatenate([s._samples, state.local_values(op)])) for s, op in zip(stats, ops)]
    if verbose and RANK0:
        err = max(error_and_scale(s)[0] for s in stats)
        bar.write(f"done after {it + 1} rounds, largest error {err:g}")
    bar.close()
    return stats
