import json
import os
import shutil

import jax
import numpy as np
from jax.experimental import multihost_utils


def _gather(params):
    """Every process takes part; each gets whole arrays."""
    return jax.tree.map(lambda x: multihost_utils.process_allgather(x, tiled=True), params)


def _write(params, folder):
    names = {}
    for path, value in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path).strip("[]'").replace("']['", ".")
        np.save(os.path.join(folder, name + ".npy"), np.asarray(value))
        names[name] = list(value.shape)
    with open(os.path.join(folder, "index.json"), "w") as f:
        json.dump(names, f)


def export(params, model_dir, export_dir):
    whole = _gather(params)
    if jax.process_index() == 0:
        if os.path.exists(export_dir):
            shutil.rmtree(export_dir)
        os.makedirs(export_dir)
        _write(whole, export_dir)
        shutil.copy(os.path.join(model_dir, "config.json"), export_dir)
        print("exported to", export_dir)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("export-done")
    return export_dir


def main(args, load, mesh):
    jax.distributed.initialize()
    params = load(args.model_dir, mesh)
    export(params, args.model_dir, args.export_dir)
    if jax.process_index() == 0:
        print("done")
    jax.distributed.shutdown()
