"""Inflow of reservoirs from rain: linear recurrences over the hours (associative scan) in JAX. Weights are sharded over the devices of all processes,
each process reads its own catchments; checkpoints with Orbax, a start goes on from the last one."""
import argparse
import logging
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

GAUGES, HOURS = 24, 192
log = logging.getLogger("inflow")


def catchments(rng, count):
    """Rain at the gauges and the inflow one hour later: some of it flows off at once, some through the ground."""
    rain = rng.gamma(0.08, 6.0, (count, HOURS + 1, GAUGES)).astype(np.float32)
    share = np.linspace(0.2, 1.0, GAUGES, dtype=np.float32) / GAUGES
    fast, slow, flow = np.zeros(count, np.float32), np.zeros(count, np.float32), np.zeros((count, HOURS + 1), np.float32)
    for hour in range(HOURS + 1):
        falls = rain[:, hour] @ share
        fast, slow = 0.6 * fast + 0.5 * falls, 0.97 * slow + 0.1 * falls * falls
        flow[:, hour] = fast + slow
    return {"rain": np.log1p(rain[:, :-1]), "flow": np.log1p(flow[:, 1:])}


def fresh(key, width, depth):
    keys = iter(jax.random.split(key, 3 * depth + 2))
    normal = lambda *shape: jax.random.normal(next(keys), shape) / np.sqrt(shape[0])
    layers = [{"decay": jnp.linspace(1.0, 6.0, width), "mix": normal(width, 2 * width), "back": normal(2 * width, width)} for _ in range(depth)]
    return {"enter": normal(GAUGES, width), "layers": layers, "leave": normal(width, 1)}


def recur(decay, x):
    """h[t] = a h[t-1] + (1 - a) x[t] for all hours."""
    a = jnp.broadcast_to(jax.nn.sigmoid(decay), x.shape)
    join = lambda one, two: (one[0] * two[0], two[0] * one[1] + two[1])
    return jax.lax.associative_scan(join, (a, (1 - a) * x), axis=1)[1]


def predict(weights, rain):
    x = rain @ weights["enter"]
    for layer in weights["layers"]:
        x = x + jax.nn.silu(recur(layer["decay"], x) @ layer["mix"]) @ layer["back"]
    return (x @ weights["leave"])[..., 0]


def error(weights, batch):
    return jnp.mean((predict(weights, batch["rain"]) - batch["flow"]) ** 2)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--coordinator", required=True)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--process", type=int, required=True)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--catchments", type=int, default=32)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--show", type=int, default=10)
    p.add_argument("--save", type=int, default=100)
    p.add_argument("--folder", default="checkpoints")
    p.add_argument("--join", type=int, default=300)
    return p.parse_args()


def main():
    o = parse()
    jax.distributed.initialize(o.coordinator, o.processes, o.process, local_device_ids=[int(os.environ.get("LOCAL_RANK", "0"))], initialization_timeout=o.join)
    me = jax.process_index()
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {me} %(levelname)s %(name)s: %(message)s", force=True)
    log.setLevel(logging.INFO)
    log.info("process %d of %d, %d devices of kind %s", me, jax.process_count(), jax.device_count(), jax.devices()[0].device_kind)
    mesh = Mesh(np.array(jax.devices()), ("all",))
    rows, everywhere = NamedSharding(mesh, P("all")), NamedSharding(mesh, P())
    place = lambda x: rows if x.ndim == 2 and x.shape[0] % jax.device_count() == 0 else everywhere
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, o.rate, 50, 20000)))

    def start(key):
        weights = fresh(key, o.width, o.depth)
        return {"weights": weights, "rule": rule.init(weights)}

    shapes = jax.eval_shape(start, jax.random.key(0))
    state = jax.jit(start, out_shardings=jax.tree.map(place, shapes))(jax.random.key(0))

    @jax.jit
    def update(state, batch):
        loss, slope = jax.value_and_grad(error)(state["weights"], batch)
        change, now = rule.update(slope, state["rule"], state["weights"])
        return {"weights": optax.apply_updates(state["weights"], change), "rule": now}, loss

    keeper = ocp.CheckpointManager(os.path.abspath(o.folder), options=ocp.CheckpointManagerOptions(max_to_keep=2))
    step, began = keeper.latest_step() or 0, time.time()
    if step:
        kinds = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
        state = keeper.restore(step, args=ocp.args.StandardRestore(kinds))
        log.info("goes on from step %d", step)
    rng = np.random.default_rng(1000 * me + step)
    spread = lambda tree: jax.tree.map(lambda x: jax.make_array_from_process_local_data(rows, x), tree)
    while step < o.steps:
        step += 1
        rain = catchments(rng, o.catchments)
        state, loss = update(state, spread(rain))
        if step <= 3 or step % o.show == 0:
            value = float(loss)
            if me == 0:
                log.info("step %d error %.5f after %.1f s", step, value, time.time() - began)
        if step % o.save == 0:
            keeper.save(step, args=ocp.args.StandardSave(state))
            if me == 0:
                log.info("step %d goes to the checkpoint", step)
    keeper.wait_until_finished()
    multihost_utils.sync_global_devices("through")
    log.info("process %d through after %.1f s", me, time.time() - began)
    keeper.close()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
