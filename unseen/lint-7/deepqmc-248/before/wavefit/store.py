import os
import pickle

import jax

from wavefit.procs import collect_walkers, is_chief


def some_deleted(tree):
    return any(leaf.is_deleted() for leaf in jax.tree_util.tree_leaves(tree))


class SnapshotStore:
    """Keeps the latest state and writes it every so often and at the end."""

    def __init__(self, folder, every=500):
        self.folder = folder
        self.every = every
        self.latest = None

    def update(self, step, state):
        self.latest = (step, state)
        if step % self.every == 0:
            self.dump()

    def dump(self):
        step, state = self.latest
        walkers = collect_walkers(state["positions"])
        if is_chief():
            os.makedirs(self.folder, exist_ok=True)
            params = jax.device_get(state["params"])
            with open(os.path.join(self.folder, f"snap-{step}.pkl"), "wb") as handle:
                pickle.dump({"params": params, "walkers": walkers, "step": step}, handle)

    def close(self):
        if self.latest is not None and not some_deleted(self.latest[1]):
            self.dump()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
        return False
