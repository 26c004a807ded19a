import functools
import os

import jax
import jax.numpy as jnp
from absl import logging
from clu import metric_writers, periodic_actions
from flax import jax_utils, serialization
from flax.training import common_utils

from lm_steps import eval_step, train_step


def evaluate(p_eval, params, batches, count):
    logging.info("evaluation")
    collected = []
    for _, batch in zip(range(count), batches):
        batch = common_utils.shard(batch)
        collected.append(p_eval(params, batch))
    collected = common_utils.get_metrics(collected)
    sums = jax.tree_util.tree_map(jnp.sum, collected)
    weight = sums.pop("denominator")
    return jax.tree_util.tree_map(lambda x: x / weight, sums)


def run(config, state, train_iter, eval_set, workdir):
    chief = jax.process_index() == 0
    writer = metric_writers.create_default_writer(workdir, just_logging=not chief)
    state = jax_utils.replicate(state)
    p_train = jax.pmap(functools.partial(train_step, config=config), axis_name="batch", donate_argnums=(0,))
    p_eval = jax.pmap(functools.partial(eval_step, config=config), axis_name="batch")
    key = jax.random.fold_in(jax.random.PRNGKey(config.seed), jax.process_index())
    rngs = jax.random.split(key, jax.local_device_count())

    hooks = []
    if chief:
        hooks.append(periodic_actions.ReportProgress(num_train_steps=config.steps, writer=writer))

    for step in range(config.steps):
        final = step == config.steps - 1
        state, _ = p_train(state, common_utils.shard(next(train_iter)), rngs)
        for hook in hooks:
            hook(step)
        if step % config.eval_every == 0 or final:
            result = evaluate(p_eval, state.params, iter(eval_set), config.eval_steps)
            writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
        if (step % config.save_every == 0 or final) and chief:
            weights = jax.device_get(jax_utils.unreplicate(state.params))
            with open(os.path.join(workdir, f"params_{step}.msgpack"), "wb") as handle:
                handle.write(serialization.to_bytes(weights))
