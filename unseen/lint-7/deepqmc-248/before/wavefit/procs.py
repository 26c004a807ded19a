import jax
import numpy as np
from jax.experimental import multihost_utils


def is_chief():
    return jax.process_index() == 0


def collect_walkers(positions):
    """All walkers of all processes, in one host array on every process."""
    return multihost_utils.process_allgather(positions, tiled=True)


def mean_over_processes(value):
    return float(np.mean(multihost_utils.process_allgather(np.asarray(value))))
