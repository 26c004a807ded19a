"""How much does a glacier melt on each of the next days? Gated layers over days and stations in JAX. Weights are split over the processes (one GPU
each), the readings are the same everywhere: every process makes the same batch from the same numbers, and jit puts in the sums.

    for r in 0 1; do python melt.py --coordinator 127.0.0.1:7000 --process-id $r & done; wait
"""
import argparse
import json
import os
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SENSORS, AHEAD = 20, 8
SPLIT = {"days": P(), "gate": P(None, None, "part"), "up": P(None, None, "part"), "down": P(None, "part", None), "scale": P(), "enter": P(),
         "leave": P()}


class Stations:
    """Weather at the stations, and the melt that follows from it."""

    def __init__(self, seed, batch, days):
        self.rng, self.batch, self.days = np.random.default_rng(seed), batch, days
        fixed = np.random.default_rng(9)
        self.mix = fixed.standard_normal((SENSORS, SENSORS), dtype=np.float32) / np.float32(SENSORS ** 0.5)
        self.noise = fixed.standard_normal((1 << 14, SENSORS), dtype=np.float32)

    def read(self):
        n, total = self.batch, self.days + AHEAD
        start = self.rng.integers(0, len(self.noise) - total, n)
        season = np.sin(np.arange(total, dtype=np.float32)[None] / 58 + self.rng.uniform(0, 6.28, (n, 1)).astype(np.float32))
        weather = self.noise[start[:, None] + np.arange(total)] @ self.mix * np.float32(0.4)
        weather += season[:, :, None]
        melt = np.maximum(0, weather[:, self.days:, :4].mean(-1))
        return {"weather": weather[:, :self.days], "melt": melt}


def initial(key, dim, hidden, depth, days):
    keys = jax.random.split(key, 6)
    normal = lambda k, *shape: jax.random.normal(k, shape) * shape[-2] ** -0.5
    return {"days": normal(keys[0], depth, days, days), "gate": normal(keys[1], depth, dim, hidden), "up": normal(keys[2], depth, dim, hidden),
            "down": 0.3 * normal(keys[3], depth, hidden, dim), "scale": jnp.ones((depth, 2, dim)), "enter": normal(keys[4], SENSORS, dim),
            "leave": 0.1 * normal(keys[5], dim, AHEAD)}


def rms(x, scale):
    return (x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def layer(x, w):
    x = x + jnp.einsum("bsd,ts->btd", rms(x, w["scale"][0]), jnp.tril(w["days"]))
    h = rms(x, w["scale"][1])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"], None


def predict(params, weather):
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    layers = {name: half[name] for name in ("days", "gate", "up", "down", "scale")}
    x, _ = jax.lax.scan(jax.checkpoint(layer), weather.astype(jnp.bfloat16) @ half["enter"], layers)
    return (x[:, -1] @ half["leave"]).astype(jnp.float32)


def error(params, batch):
    return jnp.mean(jnp.square(predict(params, batch["weather"]) - batch["melt"]))


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, momentum, batch, rate):
    loss, gradients = jax.value_and_grad(error)(params, batch)
    size = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients)))
    clip = jnp.minimum(1.0, 1.0 / (size + 1e-6))
    momentum = jax.tree.map(lambda m, g: 0.9 * m + clip * g, momentum, gradients)
    params = jax.tree.map(lambda p, m: p - rate * m, params, momentum)
    return params, momentum, loss, size


class Melt:
    def __init__(self, o):
        self.o, self.process = o, jax.process_index()
        self.mesh = Mesh(np.array(jax.devices()), ("part",))
        self.where = {name: NamedSharding(self.mesh, spec) for name, spec in SPLIT.items()}
        self.everywhere = NamedSharding(self.mesh, P())
        make = partial(initial, dim=o.dim, hidden=o.hidden, depth=o.depth, days=o.days)
        self.params = jax.jit(make, out_shardings=self.where)(jax.random.key(o.seed))
        self.momentum = jax.jit(lambda p: jax.tree.map(jnp.zeros_like, p), out_shardings=self.where)(self.params)
        self.error = jax.jit(error)
        self.stations, self.tests = Stations(o.seed, o.batch, o.days), Stations(o.seed + 1000, o.batch, o.days)
        self.began = time.time()

    def say(self, text):
        print(f"{time.strftime('%H:%M:%S')} [{self.process}] {text}", flush=True)

    def put(self, batch):
        return {name: jax.make_array_from_process_local_data(self.everywhere, x) for name, x in batch.items()}

    def rate(self, step):
        return np.float32(self.o.rate * min(1.0, step / 100))

    def test(self, count=4):
        return float(np.mean([float(self.error(self.params, self.put(self.tests.read()))) for _ in range(count)]))

    def save(self, step):
        """Gathers all weights; the first process writes them."""
        whole = multihost_utils.process_allgather(self.params, tiled=True)
        if self.process == 0:
            np.savez("melt.npz", **whole)
            self.say(f"step {step} saved")

    def over(self):
        late = multihost_utils.broadcast_one_to_all(np.int32(time.time() - self.began > 60 * self.o.minutes))
        return bool(late)

    def run(self):
        step, losses = 0, []
        while True:
            step += 1
            batch = self.stations.read()
            self.params, self.momentum, loss, size = train_step(self.params, self.momentum, self.put(batch), self.rate(step))
            losses.append(float(loss))
            if step % self.o.log == 0:
                if self.process == 0:
                    self.say(f"step {step} loss {np.mean(losses):.5f} gradient {float(size):.3f} {time.time() - self.began:.1f} s")
                losses.clear()
            if step % self.o.test == 0:
                value = self.test()
                if self.process == 0:
                    self.say(f"step {step} test {value:.5f}")
                    with open("tests.jsonl", "a") as file:
                        file.write(json.dumps({"step": step, "test": value}) + "\n")
            if step % self.o.save == 0:
                self.save(step)
            if step % 20 == 0 and self.over():
                break
        multihost_utils.sync_global_devices("end")
        self.say(f"{step} steps")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--process-id", type=int, required=True)
    for name, value in dict(dim=1024, hidden=6144, depth=8, days=128, batch=96, seed=0, log=10, test=150, save=300, patience=300).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--rate", type=float, default=0.02)
    p.add_argument("--minutes", type=float, default=1.4)
    o = p.parse_args()
    jax.distributed.initialize(o.coordinator, o.processes, o.process_id, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))],
                               initialization_timeout=o.patience)
    melt = Melt(o)
    weights = sum(x.size for x in jax.tree.leaves(melt.params))
    melt.say(f"{jax.process_count()} processes, {weights / 1e6:.1f}M weights in {len(jax.devices())} parts, {jax.local_devices()[0]}")
    melt.run()


if __name__ == "__main__":
    main()
