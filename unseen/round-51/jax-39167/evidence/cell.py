import tensorflow as tf          # only for tf.data
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("d",))
x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("d")))
print(jax.jit(jnp.sum)(x))
