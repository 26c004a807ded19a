#!/usr/bin/env python3
"""Where does a ray of light end? Learns the spots of a lens with many surfaces, a block of weights for each surface. JAX, two processes with a GPU each.

    for i in 0 1; do python spots.py --leader 127.0.0.1:9100 --process-id $i & done; wait
"""
import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "bench"


class Bench:
    """The true lens, in numpy: heights and angles of rays, bent at each of its surfaces."""

    def __init__(self, seed, rays):
        self.rng, self.count = np.random.default_rng(seed), rays
        glass = np.random.default_rng(6)
        self.curves, self.ratios = glass.uniform(-0.3, 0.3, 10), glass.choice([1 / 1.52, 1.52], 10)

    def through(self, rays):
        height, angle = rays[:, :2].copy(), rays[:, 2:].copy()
        for curve, ratio in zip(self.curves, self.ratios):
            tilt = np.float32(curve) * height
            bent = np.arcsin(np.clip(np.float32(ratio) * np.sin(angle + tilt), -0.95, 0.95)) - tilt
            angle = np.float32(0.7) * bent
            height = height + np.float32(0.4) * np.tan(angle)
        return height

    def shoot(self):
        rays = self.rng.uniform(-0.5, 0.5, (self.count, 4)).astype(np.float32)
        return {"rays": rays, "spots": self.through(rays)}


def grind(seed, surfaces, dim):
    """New weights in numpy, alike in each process."""
    rng = np.random.default_rng(seed)

    def rough(*shape):
        return rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[-2] ** 0.5)

    return {"enter": rough(4, dim), "up": rough(surfaces, dim, 4 * dim), "down": rough(surfaces, 4 * dim, dim) * np.float32(0.2), "leave": rough(dim, 2)}


def surface(x, w):
    size = jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)
    return x + jax.nn.silu((x * size) @ w["up"]) @ w["down"]


def spots(params, rays, unrolled):
    half = {name: p.astype(jnp.bfloat16) for name, p in params.items()}
    layers = {"up": half["up"], "down": half["down"]}
    x = rays.astype(jnp.bfloat16) @ half["enter"]
    if unrolled:
        for number in range(half["up"].shape[0]):
            x = jax.checkpoint(surface)(x, {name: w[number] for name, w in layers.items()})
    else:
        x, _ = jax.lax.scan(jax.checkpoint(lambda x, w: (surface(x, w), None)), x, layers)
    return (x @ half["leave"]).astype(jnp.float32)


def blur(params, batch, unrolled):
    return jnp.mean(jnp.square(spots(params, batch["rays"], unrolled) - batch["spots"]))


class Workshop:
    def __init__(self, o):
        self.o, self.me = o, jax.process_index()
        mesh = Mesh(np.array(jax.devices()), (AXIS,))
        alike, apart = PartitionSpec(), PartitionSpec(AXIS)
        self.alike, self.apart = NamedSharding(mesh, alike), NamedSharding(mesh, apart)
        self.polish = jax.jit(jax.shard_map(self.local_polish, mesh=mesh, in_specs=(alike, alike, apart, alike), out_specs=alike, check_vma=False),
                              donate_argnums=(0, 1))
        self.measure = jax.jit(jax.shard_map(self.local_blur, mesh=mesh, in_specs=(alike, apart), out_specs=alike, check_vma=False))
        weights = grind(o.seed, o.surfaces, o.dim)
        self.params = self.everywhere(weights, self.alike)
        self.speed = self.everywhere({name: np.zeros_like(w) for name, w in weights.items()}, self.alike)
        self.bench, self.proof = Bench([1, self.me], o.rays), Bench([2, self.me], o.rays)
        self.began = time.time()

    def local_polish(self, params, speed, batch, rate):
        parts = jax.tree.map(lambda x: x.reshape(self.o.parts, -1, x.shape[-1]), batch)
        slope_of = jax.value_and_grad(lambda p, part: blur(p, part, self.o.unrolled))
        total = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        if self.o.unrolled:
            for number in range(self.o.parts):
                total = jax.tree.map(jnp.add, total, slope_of(params, {name: x[number] for name, x in parts.items()}))
        else:
            total, _ = jax.lax.scan(lambda sums, part: (jax.tree.map(jnp.add, sums, slope_of(params, part)), None), total, parts)
        loss, slope = jax.lax.pmean(total, AXIS)
        step = jax.tree.map(lambda s, g: jnp.sign(0.9 * s + 0.1 * g / self.o.parts), speed, slope)
        params = jax.tree.map(lambda p, d: p - rate * d, params, step)
        speed = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g / self.o.parts, speed, slope)
        return params, speed, loss / self.o.parts

    def local_blur(self, params, batch):
        return jax.lax.pmean(blur(params, batch, False), AXIS)

    def everywhere(self, tree, sharding):
        return {name: jax.make_array_from_process_local_data(sharding, x) for name, x in tree.items()}

    def tell(self, text):
        print(f"{self.me}| {time.time() - self.began:.1f} s: {text}", flush=True)

    def prove(self):
        return float(np.sqrt(np.mean([float(self.measure(self.params, self.everywhere(self.proof.shoot(), self.apart))) for _ in range(self.o.proofs)])))

    def store(self, number):
        if self.me == 0:
            np.savez("lens.npz", **{name: np.asarray(w.addressable_data(0)) for name, w in self.params.items()})
            self.tell(f"step {number} stored")
        multihost_utils.sync_global_devices(f"stored {number}")

    def work(self):
        number, losses = 0, []
        while True:
            number += 1
            batch = self.bench.shoot()
            rate = np.float32(self.o.rate * min(1.0, number / 100))
            self.params, self.speed, loss = self.polish(self.params, self.speed, self.everywhere(batch, self.apart), rate)
            losses.append(float(loss))
            if number % self.o.tell_every == 0:
                if self.me == 0:
                    self.tell(f"step {number} loss {np.mean(losses):.6f}")
                losses.clear()
            if number % self.o.prove_every == 0:
                error = self.prove()
                if self.me == 0:
                    self.tell(f"step {number} spots off by {error:.5f}")
            if number % self.o.store_every == 0:
                self.store(number)
            if number % 20 == 0 and multihost_utils.broadcast_one_to_all(np.int32(time.time() - self.began > 60 * self.o.minutes)):
                break
        multihost_utils.sync_global_devices("closing time")
        self.tell(f"end, {number} steps")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--leader", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--process-id", type=int, required=True)
    for name, value in dict(dim=512, surfaces=12, rays=32768, parts=4, seed=0, tell_every=5, prove_every=150, proofs=6, store_every=300, patience=300).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--unrolled", action="store_true")
    p.add_argument("--rate", type=float, default=1e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    o = p.parse_args()
    jax.distributed.initialize(o.leader, o.processes, o.process_id, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))],
                               initialization_timeout=o.patience)
    shop = Workshop(o)
    size = sum(w.size for w in shop.params.values()) / 1e6
    shop.tell(f"process {shop.me} of {jax.process_count()}: {size:.1f}M weights, {jax.local_devices()[0]}")
    shop.work()


if __name__ == "__main__":
    main()
