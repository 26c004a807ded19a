import jax
jax.distributed.initialize(coordinator_address="hep-a:30000", num_processes=2, process_id=1)
print(jax.device_count(), jax.local_device_count())
xs = jax.numpy.ones(jax.local_device_count())
print(xs.sum())
