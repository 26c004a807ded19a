#!/usr/bin/env python3
"""What shape has a bell that sounds like this? From partials to the profile, with gated layers. JAX, one GPU a process, gradients averaged with shard_map.

    for i in 0 1; do python ring.py --tower 127.0.0.1:9200 --process-id $i & done; wait
"""
import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

PARTIALS, PROFILE = 48, 20


class Belfry:
    """Profiles of bells and how they sound (a fixed, bent map of them, with noise)."""

    def __init__(self, seed, bells):
        self.rng, self.bells = np.random.default_rng(seed), bells
        bronze = np.random.default_rng(17)
        self.first = bronze.standard_normal((PROFILE, 64)).astype(np.float32) / np.float32(PROFILE ** 0.5)
        self.second = bronze.standard_normal((64, PARTIALS)).astype(np.float32) / np.float32(8)

    def strike(self):
        profile = self.rng.standard_normal((self.bells, PROFILE), dtype=np.float32)
        sound = np.sin(profile @ self.first * np.float32(1.5)) @ self.second
        return {"sound": sound + np.float32(0.02) * self.rng.standard_normal(sound.shape, dtype=np.float32), "profile": profile}


def cast(seed, dim, depth):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[-2] ** 0.5)

    return {"enter": draw(PARTIALS, dim), "gate": draw(depth, dim, 2 * dim), "value": draw(depth, dim, 2 * dim), "back": draw(depth, 2 * dim, dim) * np.float32(0.3),
            "leave": draw(dim, PROFILE) * np.float32(0.1)}


def layer(x, w):
    y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["value"])) @ w["back"], None


def profile_of(params, sound):
    layers = {name: params[name] for name in ("gate", "value", "back")}
    x, _ = jax.lax.scan(layer, sound @ params["enter"], layers)
    return x @ params["leave"]


def error(params, batch):
    return jnp.mean(jnp.square(profile_of(params, batch["sound"]) - batch["profile"]))


def improve(params, mean, square, batch, rate):
    loss, slope = jax.value_and_grad(error)(params, batch)
    loss, slope = jax.lax.pmean((loss, slope), "tower")
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
    square = jax.tree.map(lambda s, g: 0.98 * s + 0.02 * g * g, square, slope)
    params = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-7), params, mean, square)
    return params, mean, square, loss


def listen(params, batch):
    return jax.lax.pmean(error(params, batch), "tower")


class Foundry:
    def __init__(self, o):
        self.o, self.me = o, jax.process_index()
        mesh = Mesh(np.array(jax.devices()), ("tower",))
        self.same, self.split = NamedSharding(mesh, P()), NamedSharding(mesh, P("tower"))
        self.improve = jax.jit(jax.shard_map(improve, mesh=mesh, in_specs=(P(), P(), P(), P("tower"), P()), out_specs=P(), check_vma=False), donate_argnums=(0, 1, 2))
        self.listen = jax.jit(jax.shard_map(listen, mesh=mesh, in_specs=(P(), P("tower")), out_specs=P(), check_vma=False))
        weights = cast(o.seed, o.dim, o.depth)
        zeros = {name: np.zeros_like(w) for name, w in weights.items()}
        self.params, self.mean, self.square = (self.put(tree, self.same) for tree in (weights, zeros, zeros))
        self.belfry, self.museum = Belfry([1, self.me], o.bells), Belfry([2, self.me], o.bells)
        self.pace, self.tick, self.began = 0.1, time.perf_counter(), time.time()

    def put(self, tree, sharding):
        return {name: jax.make_array_from_process_local_data(sharding, x) for name, x in tree.items()}

    def clock(self):
        now = time.perf_counter()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now

    def say(self, text):
        print(f"{time.time() - self.began:6.1f} process {self.me}: {text}", flush=True)

    def keep(self, step):
        if self.me == 0:
            np.savez("bells.npz", **{name: np.asarray(w.addressable_data(0)) for name, w in self.params.items()})
            self.say(f"step {step} kept")
        multihost_utils.sync_global_devices(f"kept {step}")

    def toll(self):
        step, losses = 0, []
        while True:
            step += 1
            batch = self.belfry.strike()
            rate = np.float32(self.o.rate * min(1.0, step / 50))
            self.params, self.mean, self.square, loss = self.improve(self.params, self.mean, self.square, self.put(batch, self.split), rate)
            losses.append(float(loss))
            self.clock()
            if step % self.o.say_every == 0:
                if self.me == 0:
                    self.say(f"step {step} loss {np.mean(losses):.5f} {self.pace:.3f} s a step")
                losses.clear()
            if step % self.o.listen_every == 0:
                value = np.mean([float(self.listen(self.params, self.put(self.museum.strike(), self.split))) for _ in range(self.o.listens)])
                if self.me == 0:
                    self.say(f"step {step} museum {value:.5f}")
            if step % self.o.keep_every == 0:
                self.keep(step)
            if step % 20 == 0 and multihost_utils.broadcast_one_to_all(np.int32(time.time() - self.began > 60 * self.o.minutes)):
                break
        multihost_utils.sync_global_devices("evening")
        self.say(f"end, {step} steps")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tower", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--process-id", type=int, required=True)
    for name, value in dict(dim=384, depth=4, bells=16384, seed=0, say_every=5, listen_every=120, listens=4, keep_every=200, patience=300).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--rate", type=float, default=5e-4)
    p.add_argument("--minutes", type=float, default=1.8)
    o = p.parse_args()
    print(f"process {o.process_id}: waits for the others at {o.tower}", flush=True)
    jax.distributed.initialize(o.tower, o.processes, o.process_id, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))], initialization_timeout=o.patience)
    foundry = Foundry(o)
    foundry.say(f"of {jax.process_count()}, {sum(w.size for w in foundry.params.values()) / 1e6:.2f}M weights, {jax.local_devices()[0]}")
    foundry.toll()


if __name__ == "__main__":
    main()
