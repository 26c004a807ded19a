"""Flax and optax on several processes: global arrays over one mesh, the compiler places the reductions."""
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags, logging
from flax import linen as nn
from flax.training import train_state
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

FLAGS = flags.FLAGS
flags.DEFINE_string("coordinator", "localhost:12345", "address of process 0")
flags.DEFINE_integer("num_processes", 2, "")
flags.DEFINE_integer("process_id", 0, "")
flags.DEFINE_integer("steps", 240, "")
flags.DEFINE_integer("batch", 48, "per process")
flags.DEFINE_integer("width", 512, "")
flags.DEFINE_integer("depth", 8, "")
flags.DEFINE_integer("eval_every", 80, "")
flags.DEFINE_integer("log_every", 20, "")
flags.DEFINE_integer("init_timeout", 300, "")
flags.DEFINE_float("lr", 3e-4, "")
flags.DEFINE_string("workdir", "work", "")

NOTES, LENGTH, KEYS = 128, 128, 24


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=8)(h, h)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(h)))


class KeyFinder(nn.Module):
    width: int
    depth: int

    @nn.compact
    def __call__(self, notes):
        x = nn.Embed(NOTES, self.width)(notes)
        x = x + self.param("places", nn.initializers.normal(0.02), (LENGTH, self.width))
        for _ in range(self.depth):
            x = Block(self.width)(x)
        return nn.Dense(KEYS)(nn.LayerNorm()(x).mean(1))


def tunes(step, process, count):
    """Notes of a scale: the major ones are keys 0 to 11."""
    rng = np.random.default_rng([step, process])
    keys = rng.integers(0, KEYS, count)
    scales = np.array([[0, 2, 4, 5, 7, 9, 11], [0, 2, 3, 5, 7, 8, 10]])
    degrees = rng.integers(0, 7, (count, LENGTH))
    notes = keys[:, None] % 12 + scales[keys // 12][np.arange(count)[:, None], degrees] + 12 * rng.integers(2, 7, (count, LENGTH))
    return notes.astype(np.int32), keys.astype(np.int32)


def train_step(state, notes, keys):
    def objective(params):
        logits = state.apply_fn({"params": params}, notes)
        return optax.softmax_cross_entropy_with_integer_labels(logits, keys).mean()

    loss, grads = jax.value_and_grad(objective)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss, "norm": optax.global_norm(grads)}


def eval_step(state, notes, keys):
    return (state.apply_fn({"params": state.params}, notes).argmax(-1) == keys).mean()


def save(state, step, workdir):
    if jax.process_index() == 0:
        os.makedirs(workdir, exist_ok=True)
        leaves = jax.tree_util.tree_leaves(state.params)
        np.savez(os.path.join(workdir, f"params-{step}.npz"), *[np.asarray(leaf) for leaf in leaves])
    multihost_utils.sync_global_devices(f"saved {step}")


def main(_):
    jax.distributed.initialize(FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id, initialization_timeout=FLAGS.init_timeout)
    me = jax.process_index()
    logging.info("process %d of %d, local devices %s", me, jax.process_count(), jax.local_devices())
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    everywhere, by_batch = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
    model = KeyFinder(FLAGS.width, FLAGS.depth)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, FLAGS.lr, 20, FLAGS.steps + 20)))

    def init():
        params = model.init(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    state = jax.jit(init, out_shardings=everywhere)()
    update = jax.jit(train_step, donate_argnums=0)
    check = jax.jit(eval_step)

    def together(arrays):
        return [jax.make_array_from_process_local_data(by_batch, a) for a in arrays]

    began = time.time()
    for step in range(1, FLAGS.steps + 1):
        notes, keys = together(tunes(step, me, FLAGS.batch))
        state, info = update(state, notes, keys)
        if step == 1 or step % FLAGS.log_every == 0:
            loss, norm = float(info["loss"]), float(info["norm"])
            logging.info("step=%d loss=%.4f grad_norm=%.3f time=%.1f", step, loss, norm, time.time() - began)
        if step % FLAGS.eval_every == 0:
            right = [float(check(state, *together(tunes(10**6 + k, me, FLAGS.batch)))) for k in range(4)]
            logging.info("step=%d accuracy=%.3f", step, sum(right) / len(right))
            save(state, step, FLAGS.workdir)
    multihost_utils.sync_global_devices("end")
    logging.info("process %d has finished", me)


if __name__ == "__main__":
    logging.set_verbosity(logging.INFO)
    app.run(main)
