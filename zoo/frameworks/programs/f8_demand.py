"""Demand of shops one week ahead: a mixer over days in JAX, jit over a mesh of all devices of two processes; each process has its own shops."""
import argparse
import os
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AHEAD = 7


def sales(rng, shops, days):
    """Weekly and yearly rhythm with noise."""
    level, phase = rng.uniform(1, 3, (shops, 1)), rng.uniform(0, 7, (shops, 1))
    day = np.arange(days + AHEAD) + rng.integers(0, 365, (shops, 1))
    sold = level * (2 + np.sin(2 * np.pi * (day + phase) / 7) + 0.4 * np.sin(2 * np.pi * day / 365)) + 0.1 * rng.standard_normal((shops, days + AHEAD))
    return sold.astype(np.float32)


def fresh(key, days, width, depth):
    keys = jax.random.split(key, 2 * depth + 2)
    layers = [{"a": jax.random.normal(keys[2 * i], (width, 2 * width)) / width ** 0.5, "b": jax.random.normal(keys[2 * i + 1], (2 * width, width)) / (2 * width) ** 0.5}
              for i in range(depth)]
    return {"in": jax.random.normal(keys[-2], (days, width)) / days ** 0.5, "layers": layers, "out": jax.random.normal(keys[-1], (width, AHEAD)) / width ** 0.5}


def forecast(weights, past):
    x = past @ weights["in"]
    for layer in weights["layers"]:
        x = x + jax.nn.gelu(x @ layer["a"]) @ layer["b"]
    return x @ weights["out"]


def error(weights, sold):
    past, future = sold[:, :-AHEAD], sold[:, -AHEAD:]
    mean, spread = past.mean(1, keepdims=True), past.std(1, keepdims=True)
    return jnp.mean((forecast(weights, (past - mean) / spread) - (future - mean) / spread) ** 2)


@partial(jax.jit, static_argnums=3)
def update(weights, speed, sold, rate):
    loss, slope = jax.value_and_grad(error)(weights, sold)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slope)
    return jax.tree.map(lambda w, v: w - rate * v, weights, speed), speed, loss


validate = jax.jit(error)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--id", type=int, required=True)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--shops", type=int, default=256)
    p.add_argument("--days", type=int, nargs="+", default=[56])
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--show", type=int, default=10)
    p.add_argument("--check", type=int, default=100)
    p.add_argument("--join", type=int, default=300)
    return p.parse_args()


def main():
    o = parse()
    jax.distributed.initialize(o.coordinator, o.processes, o.id, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))], initialization_timeout=o.join)
    me = jax.process_index()
    print(f"process {me} of {jax.process_count()}, {jax.device_count()} devices, {jax.devices()[0].device_kind}", flush=True)
    mesh = Mesh(np.array(jax.devices()), ("shops",))
    rows, everywhere = NamedSharding(mesh, PartitionSpec("shops")), NamedSharding(mesh, PartitionSpec())
    rng, began = np.random.default_rng(70 + me), time.time()
    held = np.random.default_rng(9 + me)
    for days in o.days:
        weights = jax.jit(partial(fresh, days=days, width=o.width, depth=o.depth), out_shardings=everywhere)(jax.random.key(0))
        speed = jax.tree.map(jnp.zeros_like, weights)
        unseen = jax.make_array_from_process_local_data(rows, sales(held, o.shops, days))
        for step in range(1, o.steps + 1):
            batch = sales(rng, o.shops, days)
            sold = jax.make_array_from_process_local_data(rows, batch)
            weights, speed, loss = update(weights, speed, sold, o.rate)
            if step <= 3 or step % o.show == 0:
                value = float(loss)
                if me == 0:
                    print(f"days {days} step {step} error {value:.5f} after {time.time() - began:.1f} s", flush=True)
            if step % o.check == 0:
                value = float(validate(weights, unseen))
                if me == 0:
                    print(f"days {days} step {step} unseen {value:.5f}", flush=True)
                    np.savez("demand.npz", **{"in": np.asarray(weights["in"].addressable_data(0))})
                multihost_utils.sync_global_devices(f"checked-{days}-{step}")
    multihost_utils.sync_global_devices("all done")
    print(f"process {me}: done after {time.time() - began:.1f} s", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
