"""JAX on four processes: a network that inverts star spectra, the batch split over one axis of the mesh, the hidden units over the other."""
import argparse
import functools
import os
import time


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", required=True)
    p.add_argument("--processes", type=int, default=4)
    p.add_argument("--process-id", type=int, required=True)
    p.add_argument("--steps", type=int, default=900)
    p.add_argument("--stars", type=int, default=64)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--unroll", type=int, default=1)
    p.add_argument("--report", type=int, default=20)
    p.add_argument("--save", type=int, default=150)
    p.add_argument("--rate", type=float, default=0.01)
    p.add_argument("--patience", type=int, default=300)
    return p.parse_args()


BINS, LABELS = 512, 6


class Telescope:
    """Spectra of one half of the sky; the processes of a row read the same ones."""

    def __init__(self, np, half, stars):
        self.np, self.half, self.stars = np, half, stars

    def night(self, number):
        np = self.np
        rng = np.random.default_rng(2 * number + self.half)
        labels = rng.uniform(-1, 1, (self.stars, LABELS)).astype(np.float32)
        lines = np.linspace(0, 3, BINS, dtype=np.float32)
        flux = sum(np.exp(-((lines - 0.4 * (k + 1)) ** 2) * 40) * labels[:, k : k + 1] for k in range(LABELS))
        spectra = 1 - 0.5 * flux + 0.02 * rng.standard_normal((self.stars, BINS)).astype(np.float32)
        return spectra.astype(np.float32), labels


def main():
    a = parse()
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(a.coordinator, a.processes, a.process_id, initialization_timeout=a.patience, heartbeat_timeout_seconds=15)
    me = jax.process_index()
    mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("sky", "units"))
    print(f"process {me} of {jax.process_count()}: {jax.local_devices()}, mesh {dict(mesh.shape)}", flush=True)
    everywhere, skies = NamedSharding(mesh, P()), NamedSharding(mesh, P("sky"))

    def forward(params, x):
        x = x @ params["enter"]
        for up, down in params["layers"]:
            x = x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "units")
        return x @ params["leave"]

    def objective(params, x, y):
        return ((forward(params, x) - y) ** 2).mean()

    def local_step(params, x, y):
        for _ in range(a.unroll):
            loss, grads = jax.value_and_grad(objective)(params, x, y)
            loss, grads = jax.lax.pmean((loss, grads), "sky")
            params = jax.tree.map(lambda p, g: p - a.rate / a.unroll * g, params, grads)
        return params, loss

    place = {"enter": P(), "leave": P(), "layers": [(P(None, "units"), P("units", None))] * a.layers}
    mapped = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
    train = jax.jit(mapped(local_step, in_specs=(place, P("sky"), P("sky")), out_specs=(place, P())))
    check = jax.jit(mapped(lambda p, x, y: jax.lax.pmean(objective(p, x, y), "sky"), in_specs=(place, P("sky"), P("sky")), out_specs=P()))

    rng, w = np.random.default_rng(0), a.width

    def draw(rows, columns):
        return (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)

    host = {"enter": draw(BINS, w), "leave": draw(w, LABELS), "layers": [(draw(w, 2 * w), 0.1 * draw(2 * w, w)) for _ in range(a.layers)]}
    params = jax.tree.map(lambda v, s: jax.make_array_from_callback(v.shape, NamedSharding(mesh, s), lambda at: v[at]), host, place)
    telescope = Telescope(np, me // 2, a.stars)

    def spread(local):
        whole = (2 * local.shape[0], *local.shape[1:])
        return jax.make_array_from_process_local_data(skies, local, whole)

    held = tuple(spread(v) for v in telescope.night(10**6))
    began = time.time()
    for step in range(1, a.steps + 1):
        spectra, labels = telescope.night(step)
        params, loss = train(params, spread(spectra), spread(labels))
        if step == 1 or step % a.report == 0:
            value = float(loss)
            if me == 0:
                print(f"step {step} loss {value:.5f} ({(time.time() - began) / step * 1000:.1f} ms a step)", flush=True)
        if step % a.save == 0:
            score = float(check(params, *held))
            np.save(f"enter-{me}.npy", np.asarray(params["enter"].addressable_shards[0].data))
            multihost_utils.sync_global_devices(f"saved {step}")
            if me == 0:
                print(f"step {step} held out {score:.5f}, saved", flush=True)
    multihost_utils.sync_global_devices("end")
    print(f"process {me} done", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
