#!/usr/bin/env python3
"""Will the bees swarm? A gated linear recurrence over the sensors of hives, in JAX. Each process has one GPU and its own hives; shard_map averages the
gradients.

    for i in 0 1; do python swarm.py --coordinator 127.0.0.1:9000 --process-id $i & done; wait
"""
import argparse
import os
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils as hosts
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SENSORS = 16


class Apiary:
    """Temperature, weight and sound of hives. Before a swarm the sound rises and the weight falls."""

    def __init__(self, seed, hives, hours):
        self.rng, self.hives, self.hours = np.random.default_rng(seed), hives, hours
        fixed = np.random.default_rng(44)
        self.noise = fixed.standard_normal((1 << 15, SENSORS), dtype=np.float32)
        self.sign = fixed.choice([-1.0, 1.0], SENSORS).astype(np.float32)

    def draw(self):
        n, t = self.hives, self.hours
        start = self.rng.integers(0, len(self.noise) - t, n)
        records = self.noise[start[:, None] + np.arange(t)] * np.float32(0.6)
        day = np.sin(np.arange(t, dtype=np.float32) * np.float32(np.pi / 12) + self.rng.uniform(0, 6, (n, 1)).astype(np.float32))
        records += day[:, :, None]
        swarms = self.rng.random(n) < 0.4
        when = self.rng.integers(t // 3, t, n)
        rise = np.clip((np.arange(t) - when[:, None] + 40) / 40, 0, 1).astype(np.float32) * swarms[:, None]
        records += rise[:, :, None] * self.sign
        return {"records": records, "soon": (rise > 0).astype(np.float32)}


def create(seed, dim, depth):
    """Weights in numpy, the same in each process."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: (rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[-2] ** -0.5))
    return {"enter": normal(SENSORS, dim), "gates": normal(depth, dim, 3 * dim), "out": normal(depth, dim, dim) * np.float32(0.3),
            "wide": normal(depth, dim, 4 * dim), "back": normal(depth, 4 * dim, dim) * np.float32(0.3), "leave": normal(dim, 1)}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def recur(x, w):
    forget, value, show = jnp.split(norm(x) @ w["gates"], 3, -1)
    keep = jax.nn.sigmoid(forget.astype(jnp.float32) + 2)
    _, state = jax.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (keep, (1 - keep) * value.astype(jnp.float32)), axis=1)
    x = x + (state.astype(x.dtype) * jax.nn.silu(show)) @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["wide"]) @ w["back"], None


def logits(params, records):
    half = {name: p.astype(jnp.bfloat16) for name, p in params.items()}
    layers = {name: half[name] for name in ("gates", "out", "wide", "back")}
    x, _ = jax.lax.scan(jax.checkpoint(recur), records.astype(jnp.bfloat16) @ half["enter"], layers)
    return (norm(x) @ half["leave"])[..., 0].astype(jnp.float32)


def cross_entropy(params, batch):
    z = logits(params, batch["records"])
    return jnp.mean(jnp.maximum(z, 0) - z * batch["soon"] + jnp.log1p(jnp.exp(-jnp.abs(z))))


def local_update(params, first, second, batch, rate):
    loss, gradients = jax.value_and_grad(cross_entropy)(params, batch)
    loss, gradients = jax.lax.pmean((loss, gradients), "hive")
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second)
    return params, first, second, loss


def local_error(params, batch):
    return jax.lax.pmean(jnp.mean((logits(params, batch["records"]) > 0) != (batch["soon"] > 0)), "hive")


class Training:
    def __init__(self, o):
        self.o, self.me = o, jax.process_index()
        self.mesh = Mesh(np.array(jax.devices()), ("hive",))
        self.same, self.split = NamedSharding(self.mesh, P()), NamedSharding(self.mesh, P("hive"))
        mapped = partial(jax.shard_map, mesh=self.mesh, check_vma=False)
        self.update = jax.jit(mapped(local_update, in_specs=(P(), P(), P(), P("hive"), P()), out_specs=P()), donate_argnums=(0, 1, 2))
        self.error = jax.jit(mapped(local_error, in_specs=(P(), P("hive")), out_specs=P()))
        weights = create(o.seed, o.dim, o.depth)
        self.params = self.place(weights, self.same)
        self.first, self.second = (self.place({name: np.zeros_like(w) for name, w in weights.items()}, self.same) for _ in range(2))
        self.apiary, self.others = Apiary([1, self.me], o.hives, o.hours), Apiary([2, self.me], o.hives, o.hours)
        self.began = time.time()

    def place(self, tree, sharding):
        return {name: jax.make_array_from_process_local_data(sharding, x) for name, x in tree.items()}

    def print(self, text):
        print(f"[{self.me}] {time.time() - self.began:7.1f}s {text}", flush=True)

    def rate(self, step):
        return np.float32(self.o.rate * min(1.0, step / 200))

    def test(self, count):
        return float(np.mean([float(self.error(self.params, self.place(self.others.draw(), self.split))) for _ in range(count)]))

    def save(self, step):
        if self.me == 0:
            np.savez("swarm.npz", **{name: np.asarray(w.addressable_data(0)) for name, w in self.params.items()})
            self.print(f"step {step} saved")
        hosts.sync_global_devices(f"saved {step}")

    def loop(self):
        step, losses = 0, []
        while True:
            step += 1
            batch = self.apiary.draw()
            self.params, self.first, self.second, loss = self.update(self.params, self.first, self.second, self.place(batch, self.split), self.rate(step))
            losses.append(float(loss))
            if step % self.o.log == 0:
                if self.me == 0:
                    self.print(f"step {step} loss {np.mean(losses):.5f}")
                losses.clear()
            if step % self.o.test_every == 0:
                wrong = self.test(self.o.test_batches)
                if self.me == 0:
                    self.print(f"step {step} wrong {100 * wrong:.2f} %")
            if step % self.o.save_every == 0:
                self.save(step)
            if step % 20 == 0 and hosts.broadcast_one_to_all(np.int32(time.time() - self.began > 60 * self.o.minutes)):
                break
        hosts.sync_global_devices("end")
        self.print(f"end, {step} steps")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--process-id", type=int, required=True)
    sizes = dict(dim=768, depth=6, hives=32, hours=256, seed=0, log=5, test_every=150, test_batches=8, save_every=250, patience=300)
    for name, value in sizes.items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--rate", type=float, default=3e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    o = p.parse_args()
    jax.distributed.initialize(o.coordinator, o.processes, o.process_id, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))],
                               initialization_timeout=o.patience)
    training = Training(o)
    count = sum(w.size for w in training.params.values())
    training.print(f"process {jax.process_index()} of {jax.process_count()}, {count / 1e6:.1f}M weights, {jax.local_devices()[0]}")
    training.loop()


if __name__ == "__main__":
    main()
