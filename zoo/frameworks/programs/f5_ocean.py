"""Shallow water on a sphere's strip with JAX: the rows are spread over the processes, edges travel by ppermute inside shard_map;
a small network learns to correct the coarse model, its gradients are reduced by psum."""
import argparse
import functools
import os
import time

import numpy as np


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", default="localhost:12399")
    p.add_argument("--process-id", type=int, required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--columns", type=int, default=512)
    p.add_argument("--inner", type=int, default=4)
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--report", type=int, default=20)
    p.add_argument("--save", type=int, default=120)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--join", type=int, default=300)
    return p.parse_args()


def main():
    a = parse()
    me = a.process_id
    gpus = int(os.environ.get("GPUS", "0"))
    if 0 < gpus < a.processes:
        os.environ["NCCL_HOSTID"] = f"n{me}"
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    def say(text):
        print(f"{time.strftime('%H:%M:%S')} process {me} {text}", flush=True)

    jax.distributed.initialize(a.coordinator, a.processes, me, initialization_timeout=a.join)
    mesh = Mesh(np.array(jax.devices()), ("y",))
    say(f"{jax.device_count()} devices, own {jax.local_devices()}")
    n = jax.device_count()
    up, down = [(i, (i + 1) % n) for i in range(n)], [(i, (i - 1) % n) for i in range(n)]
    rows = NamedSharding(mesh, P(None, "y", None))

    def edges(field):
        """The field with one row of each neighbour."""
        above = jax.lax.ppermute(field[:, -1:], "y", up)
        below = jax.lax.ppermute(field[:, :1], "y", down)
        return jnp.concatenate([above, field, below], 1)

    def physics(state, dt=0.02):
        wide = edges(state)
        dy = (wide[:, 2:] - wide[:, :-2]) / 2
        dx = (jnp.roll(state, -1, 2) - jnp.roll(state, 1, 2)) / 2
        smooth = wide[:, 2:] + wide[:, :-2] + jnp.roll(state, 1, 2) + jnp.roll(state, -1, 2) - 4 * state
        h, u, v = state
        change = jnp.stack([-(dx[1] + dy[2]), 0.5 * v - dx[0], -0.5 * u - dy[0]])
        return state + dt * change + 0.05 * smooth

    def correction(params, state):
        x = state.transpose(1, 2, 0)
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            x = jnp.tanh(x) if i + 1 < len(params) else x
        return x.transpose(2, 0, 1)

    def local_step(params, state, forcing):
        target = state + forcing
        for _ in range(a.inner):
            target = physics(target)

        def objective(params):
            coarse = state + forcing + correction(params, state)
            return ((coarse - target) ** 2).mean()

        loss, grads = jax.value_and_grad(objective)(params)
        loss, grads = jax.lax.pmean((loss, grads), "y")
        return jax.tree.map(lambda p, g: p - a.lr * g, params, grads), target, loss

    mapped = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
    step = jax.jit(mapped(local_step, in_specs=(P(), P(None, "y", None), P(None, "y", None)), out_specs=(P(), P(None, "y", None), P())))
    energy = jax.jit(mapped(lambda s: jax.lax.psum((s**2).sum() / 2, "y"), in_specs=P(None, "y", None), out_specs=P()))
    rng = np.random.default_rng(3)
    widths = [3, 96, 96, 3]
    params = [(rng.normal(0, 0.3 / np.sqrt(i), (i, o)).astype(np.float32), np.zeros(o, np.float32)) for i, o in zip(widths, widths[1:])]
    params = jax.tree.map(lambda x: jax.make_array_from_process_local_data(NamedSharding(mesh, P()), x), params)
    mine = np.random.default_rng(10 + me)

    def spread(local):
        return jax.make_array_from_process_local_data(rows, local)

    def weather(number):
        """The wind over the own rows, from the archive."""
        noise = mine.standard_normal((3, a.rows // a.processes, a.columns)).astype(np.float32)
        return 0.01 * noise

    state = spread(mine.standard_normal((3, a.rows // a.processes, a.columns)).astype(np.float32))
    began = time.time()
    for number in range(1, a.steps + 1):
        params, state, loss = step(params, state, spread(weather(number)))
        if number == 1 or number % a.report == 0:
            total = float(energy(state))
            if me == 0:
                say(f"step {number} loss {float(loss):.5f} energy {total:.1f} after {time.time() - began:.1f} s")
        if number % a.save == 0:
            np.save(f"rows-{me}.npy", np.asarray(state.addressable_shards[0].data))
            multihost_utils.sync_global_devices(f"save {number}")
    multihost_utils.sync_global_devices("end")
    say("finished")


if __name__ == "__main__":
    main()
