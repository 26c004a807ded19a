"""Tracks of typhoons: where the centre is in six hours, from the fields around it and the last positions. A transformer over patches in JAX, one process
per GPU, data parallel over one mesh axis.

  for i in 0 1; do python track.py --coordinator localhost:4321 --process-id $i & done; wait
"""
import argparse
import os
import queue
import threading
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FIELDS, EDGE, PATCH = 6, 64, 8
TOKENS = (EDGE // PATCH) ** 2


class State(NamedTuple):
    params: dict
    mean: dict
    square: dict
    step: jax.Array


class Archive:
    """Storms of this process, read ahead by a thread."""

    def __init__(self, process, count, ahead=3):
        self.rng, self.count = np.random.default_rng(400 + process), count
        grid = np.linspace(-1, 1, EDGE, dtype=np.float32)
        self.y, self.x = grid[:, None], grid[None, :]
        self.noise = self.rng.standard_normal((64, FIELDS, EDGE, EDGE), dtype=np.float32) * np.float32(0.3)
        self.queue = queue.Queue(ahead)
        threading.Thread(target=self.fill, daemon=True).start()

    def read(self):
        n = self.count
        centre = self.rng.uniform(-0.4, 0.4, (n, 2)).astype(np.float32)
        wind = self.rng.standard_normal((n, 2), dtype=np.float32) * np.float32(0.2)
        fields = self.noise[self.rng.integers(0, 64, n)]
        low = np.exp(-8 * ((self.y[None] - centre[:, 0, None, None]) ** 2 + (self.x[None] - centre[:, 1, None, None]) ** 2))
        fields[:, 0] -= low
        fields[:, 1:3] += wind[:, :, None, None]
        moved = centre + wind * np.float32(0.6)
        return {"fields": fields, "centre": centre, "target": moved}

    def fill(self):
        while True:
            self.queue.put(self.read())

    def __next__(self):
        return self.queue.get()


def initial(key, dim, depth):
    keys = iter(jax.random.split(key, 8))
    dense = lambda *shape: jax.random.normal(next(keys), shape) * shape[-2] ** -0.5
    layers = {"qkv": dense(depth, dim, 3 * dim), "out": dense(depth, dim, dim), "up": dense(depth, dim, 4 * dim), "down": dense(depth, 4 * dim, dim),
              "scale": jnp.ones((depth, 2, dim))}
    return {"layers": layers, "patch": dense(FIELDS * PATCH * PATCH, dim), "place": 0.02 * jax.random.normal(next(keys), (TOKENS, dim)), "last": dense(2, dim),
            "head": 0.01 * dense(dim, 2)}


def normed(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-6).astype(x.dtype) * scale


def block(x, w, heads):
    b, t, d = x.shape
    q, k, v = jnp.split((normed(x, w["scale"][0]) @ w["qkv"]).reshape(b, t, heads, -1), 3, axis=-1)
    weight = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5).astype(x.dtype)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weight, v).reshape(b, t, d) @ w["out"]
    return x + jax.nn.gelu(normed(x, w["scale"][1]) @ w["up"]) @ w["down"]


def forward(params, fields, centre, heads):
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    b = fields.shape[0]
    patches = fields.reshape(b, FIELDS, EDGE // PATCH, PATCH, EDGE // PATCH, PATCH).transpose(0, 2, 4, 1, 3, 5).reshape(b, TOKENS, -1)
    x = patches.astype(jnp.bfloat16) @ half["patch"] + half["place"] + (centre.astype(jnp.bfloat16) @ half["last"])[:, None]
    x, _ = jax.lax.scan(lambda x, w: (jax.checkpoint(block, static_argnums=2)(x, w, heads), None), x, half["layers"])
    return centre + (x.mean(1) @ half["head"]).astype(jnp.float32)


def distance(params, batch, heads):
    return jnp.mean(jnp.sum((forward(params, batch["fields"], batch["centre"], heads) - batch["target"]) ** 2, -1))


def update(state, batch, heads, rate):
    loss, grads = jax.value_and_grad(distance)(state.params, batch, heads)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), grads)
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, grads)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state.square, grads)
    rate = rate * jnp.minimum(1.0, step / 200)
    params = jax.tree.map(lambda p, m, s: p - rate * m / (1 - 0.9 ** step) / (jnp.sqrt(s / (1 - 0.99 ** step)) + 1e-8), state.params, mean, square)
    return State(params, mean, square, step), {"loss": loss, "norm": norm}


class Run:
    def __init__(self, o):
        self.o, self.process = o, jax.process_index()
        self.mesh = Mesh(np.array(jax.devices()), ("storms",))
        self.shared, self.split = NamedSharding(self.mesh, P()), NamedSharding(self.mesh, P("storms"))
        make = jax.jit(lambda key: initial(key, o.dim, o.depth), out_shardings=self.shared)
        params = make(jax.random.key(o.seed))
        zeros = jax.jit(lambda p: jax.tree.map(jnp.zeros_like, p), out_shardings=self.shared)
        self.state = State(params, zeros(params), zeros(params), jax.jit(lambda: jnp.float32(0), out_shardings=self.shared)())
        self.update = jax.jit(lambda state, batch: update(state, batch, o.heads, o.rate), out_shardings=self.shared, donate_argnums=0)
        self.error = jax.jit(lambda params, batch: distance(params, batch, o.heads), out_shardings=self.shared)
        self.archive = Archive(self.process, o.batch)
        self.tests = [self.place(Archive(1000 + self.process, o.batch).read()) for _ in range(2)]
        self.began = time.time()

    def place(self, batch):
        return {name: jax.make_array_from_process_local_data(self.split, value) for name, value in batch.items()}

    def say(self, text):
        print(f"{time.strftime('%H:%M:%S')} process {self.process}: {text}", flush=True)

    def weights(self):
        return jax.tree.map(lambda p: np.asarray(p.addressable_data(0)), self.state.params)

    def save(self, step):
        flat, _ = jax.tree.flatten(self.weights())
        np.savez("tracks.npz", *flat)
        self.say(f"step {step} saved")

    def over(self):
        return bool(multihost_utils.broadcast_one_to_all(np.int32(time.time() - self.began > 60 * self.o.minutes)))

    def fit(self):
        step = 0
        while True:
            step += 1
            batch = next(self.archive)
            self.state, seen = self.update(self.state, self.place(batch))
            if step % self.o.log_every == 0:
                loss, norm = float(seen["loss"]), float(seen["norm"])
                if self.process == 0:
                    self.say(f"step {step} loss {loss:.5f} norm {norm:.3f} {time.time() - self.began:.1f} s")
            if step % self.o.test_every == 0:
                error = np.mean([float(self.error(self.state.params, test)) for test in self.tests])
                if self.process == 0:
                    self.say(f"step {step} off by {error ** 0.5 * 1000:.1f} km")
            if step % self.o.save_every == 0 and self.process == 0:
                self.save(step)
            if step % 20 == 0 and self.over():
                break
        multihost_utils.sync_global_devices("end")
        self.say(f"{step} steps, {time.time() - self.began:.1f} s")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--process-id", type=int, required=True)
    p.add_argument("--dim", type=int, default=768)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--batch", type=int, default=192, help="storms for each process")
    p.add_argument("--rate", type=float, default=2e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--test-every", type=int, default=200)
    p.add_argument("--save-every", type=int, default=300)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--patience", type=int, default=300)
    o = p.parse_args()
    jax.distributed.initialize(o.coordinator, o.processes, o.process_id, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))], initialization_timeout=o.patience)
    run = Run(o)
    run.say(f"{jax.process_count()} processes, {sum(p.size for p in jax.tree.leaves(run.state.params)) / 1e6:.1f}M parameters, jax {jax.__version__} on {jax.devices()[0].device_kind}")
    run.fit()


if __name__ == "__main__":
    main()
