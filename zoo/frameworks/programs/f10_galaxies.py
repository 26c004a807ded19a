"""Redshifts of galaxies from their colours: a conditional normalising flow (affine couplings) by maximum likelihood, in JAX on several processes.

Start one process for each GPU:
  python fit_flow.py --coordinator-address localhost:1234 --num-processes 2 --process-id 0 &
  python fit_flow.py --coordinator-address localhost:1234 --num-processes 2 --process-id 1
"""
import argparse
import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BANDS = 14


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--coordinator-address", required=True)
    ap.add_argument("--num-processes", type=int, default=2)
    ap.add_argument("--process-id", type=int, required=True)
    ap.add_argument("--batch", type=int, default=8192, help="galaxies per process")
    ap.add_argument("--hidden", type=int, default=2048)
    ap.add_argument("--couplings", type=int, default=12)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--minutes", type=float, default=1.2)
    ap.add_argument("--print-every", type=int, default=20)
    ap.add_argument("--eval-every", type=int, default=200)
    ap.add_argument("--save-every", type=int, default=400)
    ap.add_argument("--init-timeout", type=int, default=300)
    return ap.parse_args()


def survey(rng, n):
    """Mock photometry: colours shift through the bands with redshift."""
    z = rng.gamma(3.0, 0.35, n).astype(np.float32)
    kind = rng.integers(0, 4, n)
    band = np.arange(BANDS, dtype=np.float32)
    colour = np.sin(0.5 * band[None] + 1.3 * z[:, None] + kind[:, None]) + 0.1 * band * np.log1p(z)[:, None]
    colour += 0.05 * rng.standard_normal((n, BANDS), dtype=np.float32)
    size = rng.standard_normal(n, dtype=np.float32) * 0.3 - np.log(z + 0.1)
    return {"x": np.stack([np.log(z), size.astype(np.float32)], 1), "c": colour.astype(np.float32)}


def init(key, couplings, hidden):
    params = []
    for k in jax.random.split(key, couplings):
        a, b, c = jax.random.split(k, 3)
        params.append({"w0": jax.random.normal(a, (1 + BANDS, hidden)) / np.sqrt(1 + BANDS), "b0": jnp.zeros(hidden),
                       "w1": jax.random.normal(b, (hidden, hidden)) / np.sqrt(hidden), "b1": jnp.zeros(hidden),
                       "w2": 1e-3 * jax.random.normal(c, (hidden, 2)), "b2": jnp.zeros(2)})
    return params


def log_prob(params, x, c):
    a, b, logdet = x[:, :1], x[:, 1:], 0.0
    for p in params:
        h = jax.nn.gelu(jnp.concatenate([a, c], 1) @ p["w0"] + p["b0"])
        h = jax.nn.gelu(h @ p["w1"] + p["b1"])
        s, t = jnp.split(h @ p["w2"] + p["b2"], 2, axis=1)
        s = jnp.tanh(s)
        a, b, logdet = b * jnp.exp(s) + t, a, logdet + s[:, 0]
    return logdet - 0.5 * (a[:, 0] ** 2 + b[:, 0] ** 2) - jnp.log(2 * jnp.pi)


def nll(params, batch):
    return -jnp.mean(log_prob(params, batch["x"], batch["c"]))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, moments, batch, step, lr):
    loss, grads = jax.value_and_grad(nll)(params, batch)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grads)
    lr = lr * jnp.minimum(1.0, step / 100) * jnp.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step)
    params = jax.tree.map(lambda p, m, v: p - lr * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return params, (m, v), loss


evaluate = jax.jit(nll)


def total(params):
    """A number that tells whether two processes have the same weights."""
    local = jax.tree.map(lambda p: np.asarray(p.addressable_data(0), np.float64), params)
    return float(sum(np.abs(p).sum() for p in jax.tree.leaves(local)))


def main():
    args = get_args()
    jax.distributed.initialize(args.coordinator_address, args.num_processes, args.process_id,
                               local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))], initialization_timeout=args.init_timeout)
    pid = jax.process_index()
    say = lambda text: print(f"[p{pid} {time.strftime('%H:%M:%S')}] {text}", flush=True)
    say(f"{jax.process_count()} processes, {jax.device_count()} devices ({jax.devices()[0].platform}), jax {jax.__version__}")
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    make = jax.jit(functools.partial(init, couplings=args.couplings, hidden=args.hidden), out_shardings=same)
    params = make(jax.random.key(0))
    moments = jax.jit(lambda p: (jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)), out_shardings=same)(params)
    put = lambda host: {k: jax.make_array_from_process_local_data(split, v) for k, v in host.items()}
    rng = np.random.default_rng(pid)
    held_out = put(survey(np.random.default_rng(900 + pid), args.batch))
    step, start, best = 0, time.time(), np.inf
    while True:
        step += 1
        sample = survey(rng, args.batch)
        params, moments, loss = train_step(params, moments, put(sample), step, args.lr)
        if step % args.print_every == 0:
            value = float(loss)
            if pid == 0:
                say(f"step {step} nll {value:.4f} {time.time() - start:.1f}s")
        if step % args.eval_every == 0:
            value = float(evaluate(params, held_out))
            say(f"step {step} held-out nll {value:.4f} weights {total(params):.6f}")
            best = min(best, value)
        if step % args.save_every == 0 and pid == 0:
            np.savez("flow.npz", **{f"{i}/{k}": np.asarray(v) for i, p in enumerate(params) for k, v in p.items()})
            say(f"step {step} saved flow.npz")
        if step % 50 == 0:
            over = multihost_utils.broadcast_one_to_all(np.int32(time.time() - start > 60 * args.minutes))
            if over:
                break
    multihost_utils.sync_global_devices("end")
    say(f"finished {step} steps, best {best:.4f}")


if __name__ == "__main__":
    main()
