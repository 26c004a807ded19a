import ray
from horovod.ray import RayExecutor
from tabular import train_fn            # calls hvd.init(), torch.cuda.set_device(hvd.local_rank())

ray.init(address="auto")
settings = RayExecutor.create_settings(timeout_s=60)
ex = RayExecutor(settings, num_hosts=1, num_slots=4, use_gpu=True, cpus_per_slot=6)
ex.start()
print(ex.run(lambda: __import__("os").environ.get("LOCAL_RANK")))
ex.run(train_fn)
