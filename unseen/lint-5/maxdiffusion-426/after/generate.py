import time

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from profiling import Profiler


class VideoPipeline:
    def __init__(self, params, mesh, denoise):
        self.params = params
        self.sharding = NamedSharding(mesh, PartitionSpec("data"))
        self.denoise = jax.jit(denoise, out_shardings=self.sharding)

    def __call__(self, latents, steps):
        for step in range(steps):
            latents = self.denoise(self.params, latents, step)
        return multihost_utils.process_allgather(latents, tiled=True)


def call_pipeline(config, pipeline, seed=0):
    latents = jax.random.normal(jax.random.key(seed), (config.batch, config.frames, config.width))
    profiler = Profiler(config)
    profiler.start()
    videos = pipeline(latents, config.steps)
    profiler.stop()
    return videos


def run(config, pipeline, writer=None):
    wanted = config.enable_profiler
    config.enable_profiler = False

    call_pipeline(config, pipeline)
    start = time.perf_counter()
    videos = call_pipeline(config, pipeline)
    print("generation took", time.perf_counter() - start)

    config.enable_profiler = wanted
    if wanted:
        start = time.perf_counter()
        videos = call_pipeline(config, pipeline)
        seconds = time.perf_counter() - start
        if writer and jax.process_index() == 0:
            writer.add_scalar("generation_with_profiler", seconds, 0)
    return jnp.asarray(videos)
