import argparse
import os
import pickle
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

WIDTH, CLASSES = 384, 20


def init(key):
    a, b, c = jax.random.split(key, 3)
    return {"conv": jax.random.normal(a, (9, WIDTH)) / 3, "mix": jax.random.normal(b, (WIDTH, WIDTH)) / WIDTH**0.5,
            "out": jax.random.normal(c, (WIDTH, CLASSES)) / WIDTH**0.5}


def logits(params, x):
    windows = jnp.stack([jnp.roll(x, s, axis=1) for s in range(-4, 5)], -1)
    h = jax.nn.relu(windows @ params["conv"])
    h = h + jax.nn.relu(h @ params["mix"])
    return h.mean(1) @ params["out"]


def objective(params, x, y):
    return -(jax.nn.log_softmax(logits(params, x))[jnp.arange(y.shape[0]), y]).mean()


def make_update(mesh):
    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(), P("hosts"), P("hosts")), out_specs=(P(), P(), P()), check_vma=False)
    def update(params, momentum, x, y):
        loss, grads = jax.value_and_grad(objective)(params, x, y)
        grads = jax.lax.pmean(grads, "hosts")
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.02 * m, params, momentum)
        return params, momentum, jax.lax.pmean(loss, "hosts")
    return update


def shard(step, rank, size):
    rng = np.random.default_rng([step, rank])
    y = rng.integers(0, CLASSES, size)
    t = np.arange(64)
    x = np.sin(t[None] * (y[:, None] + 1) * 0.1) + 0.3 * rng.normal(size=(size, 64))
    return x.astype(np.float32), y.astype(np.int32)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--rank", type=int)
    cli.add_argument("--hosts", type=int, default=2)
    cli.add_argument("--address")
    cli.add_argument("--epochs", type=int, default=4)
    cli.add_argument("--epoch-steps", type=int, default=60)
    cli.add_argument("--batch", type=int, default=64)
    cli.add_argument("--heartbeat", type=int, default=20)
    cli.add_argument("--join-timeout", type=int, default=300)
    opts = cli.parse_args()
    jax.distributed.initialize(opts.address, opts.hosts, opts.rank, initialization_timeout=opts.join_timeout,
                               heartbeat_timeout_seconds=opts.heartbeat)
    me = jax.process_index()
    print(f"[host {me}] {jax.device_count()} devices in total, {jax.local_device_count()} here", flush=True)
    mesh = Mesh(np.array(jax.devices()), ("hosts",))
    params = jax.jit(init, out_shardings=NamedSharding(mesh, P()))(jax.random.key(3))
    momentum = jax.tree.map(jnp.zeros_like, params)
    update = make_update(mesh)
    spread = NamedSharding(mesh, P("hosts"))
    for epoch in range(opts.epochs):
        began = time.time()
        for step in range(opts.epoch_steps):
            number = epoch * opts.epoch_steps + step
            x, y = shard(number, me, opts.batch)
            batch = [jax.make_array_from_process_local_data(spread, part) for part in (x, y)]
            params, momentum, loss = update(params, momentum, *batch)
            if step % 20 == 19 and me == 0:
                print(f"[host {me}] epoch {epoch} step {step + 1} loss {float(loss):.4f}", flush=True)
        x, y = shard(10**6, me, 256)
        right = np.array([(np.argmax(logits(jax.tree.map(np.asarray, params), x), 1) == y).mean()])
        accuracy = multihost_utils.process_allgather(right).mean()
        if me == 0:
            print(f"[host {me}] epoch {epoch} accuracy {accuracy:.3f} in {time.time() - began:.1f} s", flush=True)
            with open(f"params-{epoch}.pkl", "wb") as file:
                pickle.dump(jax.tree.map(np.asarray, params), file)
        multihost_utils.sync_global_devices(f"epoch {epoch}")
    print(f"[host {me}] over", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
