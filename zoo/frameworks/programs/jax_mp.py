import argparse
import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def init_params(key, sizes):
    params = []
    for n_in, n_out in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        params.append({"w": jax.random.normal(sub, (n_in, n_out)) * n_in**-0.5, "b": jnp.zeros(n_out)})
    return params


def forward(params, x):
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    params = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
    return params, loss


@jax.jit
def evaluate(params, x, y):
    return loss_fn(params, x, y)


def local_batch(step, process, size):
    rng = np.random.default_rng(1000 * step + process)
    x = rng.normal(size=(size, 256)).astype(np.float32)
    record = {"x": x, "y": np.tanh(x[:, :32])}
    return record["x"], record["y"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--num-processes", type=int, required=True)
    parser.add_argument("--process-id", type=int, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--init-timeout", type=int, default=300)
    args = parser.parse_args()
    jax.distributed.initialize(args.coordinator, args.num_processes, args.process_id,
                               initialization_timeout=args.init_timeout, heartbeat_timeout_seconds=20)
    process = jax.process_index()
    print(f"process {process}/{jax.process_count()}: local devices {jax.local_devices()}", flush=True)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    replicated, sharded = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = jax.jit(init_params, static_argnums=1, out_shardings=replicated)(jax.random.key(0), (256, 1024, 1024, 32))
    started = time.time()
    for step in range(1, args.steps + 1):
        x, y = local_batch(step, process, args.batch)
        x = jax.make_array_from_process_local_data(sharded, x)
        y = jax.make_array_from_process_local_data(sharded, y)
        params, loss = train_step(params, x, y)
        if step % 20 == 0:
            value = float(loss)
            if process == 0:
                print(f"step {step} loss {value:.4f} ({(time.time() - started) / step * 1e3:.1f} ms/step)", flush=True)
        if step % 100 == 0:
            value = float(evaluate(params, x, y))
            if process == 0:
                print(f"step {step} eval loss {value:.4f}", flush=True)
    print(f"process {process} finished", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
