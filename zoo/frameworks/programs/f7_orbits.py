"""Positions of planets from orbital elements: a network of sines in JAX, pmap over all devices of two processes."""
import json
import os
import pathlib
import pickle
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

DEFAULTS = {"steps": 300, "batch": 512, "width": 256, "depth": 4, "rate": 3e-4, "print": 10, "check": 50, "save": 100, "join": 300, "linger": 0.0}


def settings():
    """Each setting may be given as ORBITS_NAME in the environment."""
    return {k: type(v)(os.environ.get(f"ORBITS_{k.upper()}", v)) for k, v in DEFAULTS.items()}


def kepler(rng, count):
    """Elements (eccentricity, phase, time) and the position in the plane, by ten rounds of Newton's method."""
    e, phase, t = rng.uniform(0, 0.6, count), rng.uniform(0, 2 * np.pi, count), rng.uniform(0, 6, count)
    mean = phase + t
    anomaly = mean.copy()
    for _ in range(10):
        anomaly -= (anomaly - e * np.sin(anomaly) - mean) / (1 - e * np.cos(anomaly))
    where = np.stack([np.cos(anomaly) - e, np.sqrt(1 - e**2) * np.sin(anomaly)], 1)
    return np.stack([e, phase, t], 1).astype(np.float32), where.astype(np.float32)


def fresh(key, width, depth):
    sizes = [3] + [width] * depth + [2]
    return [(jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b)) for k, a, b in zip(jax.random.split(key, len(sizes)), sizes, sizes[1:])]


def position(net, elements):
    x = elements
    for weight, bias in net[:-1]:
        x = jnp.sin(x @ weight + bias)
    weight, bias = net[-1]
    return x @ weight + bias


def distance(net, elements, where):
    return jnp.mean(jnp.sum((position(net, elements) - where) ** 2, -1))


@partial(jax.pmap, axis_name="sky", static_broadcasted_argnums=4)
def advance(net, speed, elements, where, rate):
    loss, slope = jax.value_and_grad(distance)(net, elements, where)
    slope, loss = jax.lax.pmean((slope, loss), "sky")
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slope)
    return jax.tree.map(lambda w, v: w - rate * v, net, speed), speed, loss


@partial(jax.pmap, axis_name="sky")
def validate(net, elements, where):
    return jax.lax.pmean(distance(net, elements, where), "sky")


def main():
    s = settings()
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["ORBITS_COORDINATOR"], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]), local_device_ids=[int(os.environ["LOCAL_RANK"])],
                               initialization_timeout=s["join"])
    me, here = jax.process_index(), jax.local_device_count()
    print(f"process {me}/{jax.process_count()}: {here} of {jax.device_count()} devices, {jax.local_devices()[0].device_kind}", flush=True)
    net = jax.device_put_replicated(fresh(jax.random.key(1), s["width"], s["depth"]), jax.local_devices()) if hasattr(jax, "device_put_replicated") else jax.tree.map(
        lambda w: jnp.stack([w] * here), fresh(jax.random.key(1), s["width"], s["depth"]))
    speed = jax.tree.map(jnp.zeros_like, net)
    rng, held = np.random.default_rng(50 + me), kepler(np.random.default_rng(7), s["batch"])
    held = [np.stack([part] * here) for part in held]
    began = time.time()
    for step in range(1, s["steps"] + 1):
        elements, where = (part.reshape(here, s["batch"], -1) for part in kepler(rng, here * s["batch"]))
        net, speed, loss = advance(net, speed, elements, where, s["rate"])
        if step == 1 or step % s["print"] == 0:
            shown = float(loss[0])
            if me == 0:
                print(json.dumps({"step": step, "loss": round(shown, 6), "seconds": round(time.time() - began, 2)}), flush=True)
        if step % s["check"] == 0:
            error = float(validate(net, *held)[0])
            if me == 0:
                print(json.dumps({"step": step, "held_out": round(error, 6)}), flush=True)
        if step % s["save"] == 0:
            if me == 0:
                time.sleep(s["linger"])  # the archive is far away
                pathlib.Path("net.pickle").write_bytes(pickle.dumps(jax.tree.map(lambda w: np.asarray(w[0]), net)))
            multihost_utils.sync_global_devices(f"saved-{step}")
    multihost_utils.sync_global_devices("over")
    print(f"process {me}: over after {s['steps']} steps", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
