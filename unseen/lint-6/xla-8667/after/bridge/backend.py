import os

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from bridge.environment import Environment


def initialize():
    jax.distributed.initialize(
        coordinator_address=os.environ["COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["NUM_PROCESSES"]),
        process_id=int(os.environ["PROCESS_ID"]),
    )
    return Environment(seed=int(os.environ.get("SEED", "0")))


class ProcessGroup:
    """The collectives of torch.distributed for processes that drive several devices."""

    def __init__(self, environment):
        self.environment = environment
        self.mesh = Mesh(np.array(jax.devices()), ("all",))

    def rank(self):
        return jax.process_index()

    def size(self):
        return jax.process_count()

    def all_gather(self, tensor):
        return multihost_utils.process_allgather(self.environment.to_jax(tensor))

    def all_reduce(self, tensor):
        return self.all_gather(tensor).sum(axis=0)

    def replicate(self, tensor):
        array = np.asarray(self.environment.to_jax(tensor))
        return jax.make_array_from_process_local_data(NamedSharding(self.mesh, P()), array)

    def barrier(self):
        multihost_utils.sync_global_devices("barrier")
