"""JAX jobs over all GPUs of one process, recorded by JAX's profiler: `python3 jax_plants.py OUT`."""

import json
import os
import shutil
import sys
import time
import glob

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def job(kind, width, layers, tokens):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    keys = jax.random.split(jax.random.key(0), layers)
    weights = [jax.device_put(jax.random.normal(k, (width, width), jnp.bfloat16) * 0.02, whole) for k in keys]
    n = len(jax.devices())
    x = jax.device_put(jnp.ones((tokens * n, width), jnp.bfloat16), split)

    def loss(weights, x):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return (x.astype(jnp.float32) ** 2).mean()

    @jax.jit
    def step(weights, x):
        grads = jax.grad(loss)(weights, x)
        return [w - 1e-4 * g for w, g in zip(weights, grads)]

    host = np.ones((tokens * n, width), np.float32)

    def run(weights):
        given = x
        if kind == "loader":
            time.sleep(0.03)
        if kind == "copies":
            given = jax.device_put(host, split).astype(jnp.bfloat16)
        weights = step(weights, given)
        if kind == "sync":
            for w in weights:
                float(w[0, 0])
        if kind == "small":
            for _ in range(200):
                given = given * 1.0
        return weights

    return run, weights


ROWS = {
    "j-control": ("plain", {"cause": "none", "also_right": ["no-compute-overlap"]}),
    "j-loader": ("loader", {"cause": "data-loading-bound", "also_right": ["host-bound"], "control": "j-control"}),
    "j-copies": ("copies", {"cause": "transfer-bound", "also_right": ["data-loading-bound", "host-bound"], "control": "j-control"}),
    "j-sync": ("sync", {"cause": "sync-stalls", "also_right": ["host-bound"], "control": "j-control"}),
}


def main(out):
    for name, (kind, truth) in ROWS.items():
        folder = f"{out}/{name}"
        os.makedirs(folder, exist_ok=True)
        gpu = jax.devices()[0].platform == "gpu"
        step, weights = job(kind, *((6144, 8, 4096) if gpu else (64, 2, 8)))
        for _ in range(3):
            weights = step(weights)
        jax.block_until_ready(weights)
        begin = time.monotonic()
        for _ in range(8):
            weights = step(weights)
        jax.block_until_ready(weights)
        step_ms = (time.monotonic() - begin) / 8 * 1e3
        with jax.profiler.trace(folder + "/raw"):
            for n in range(5):
                with jax.profiler.StepTraceAnnotation("train", step_num=n):
                    weights = step(weights)
            jax.block_until_ready(weights)
        for file in glob.glob(folder + "/raw/**/*.*", recursive=True):
            if os.path.isfile(file):
                shutil.move(file, folder + "/" + os.path.basename(file))
        shutil.rmtree(folder + "/raw")
        json.dump({**truth, "culprit_ranks": [], "step_ms": round(step_ms, 3)}, open(folder + "/truth.json", "w"), indent=1)
        print(name, step_ms, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
