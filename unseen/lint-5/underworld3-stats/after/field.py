import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


class Field:
    """A variable on the part of the mesh that this process owns."""

    def __init__(self, name, values):
        self.name = name
        self.values = np.asarray(values, dtype=float)

    def stats(self):
        count = comm.allreduce(self.values.size, op=MPI.SUM)
        total = comm.allreduce(float(self.values.sum()), op=MPI.SUM)
        low = comm.allreduce(float(self.values.min()), op=MPI.MIN)
        high = comm.allreduce(float(self.values.max()), op=MPI.MAX)
        return {"size": count, "mean": total / count, "min": low, "max": high}


class AdvDiff:
    def __init__(self, field, diffusivity, spacing):
        self.field = field
        self.history = Field(field.name + "_star", field.values.copy())
        self.diffusivity = diffusivity
        self.spacing = spacing

    def estimate_dt(self):
        local = self.spacing**2 / self.diffusivity
        return comm.allreduce(local, op=MPI.MIN)

    def solve(self, timestep):
        self.history.values[:] = self.field.values
        laplacian = np.gradient(np.gradient(self.field.values))
        self.field.values += timestep * self.diffusivity * laplacian
