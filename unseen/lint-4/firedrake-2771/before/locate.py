from mpi4py import MPI


class Dat:
    def __init__(self, values, halo, comm=MPI.COMM_WORLD):
        self.values = values
        self.halo = halo
        self.comm = comm
        self.halo_valid = False

    @property
    def data_ro(self):
        if not self.halo_valid:
            self.comm.Alltoall(self.halo.send, self.halo.receive)
            self.halo_valid = True
        return self.values[: self.halo.owned]


def locate(mesh, coordinates: Dat, cells):
    found = mesh.dat.data_ro.shape
    if mesh.comm.rank == 0:
        origin = coordinates.data_ro
        print("mesh", found, "starts at", origin[0])
    mesh.comm.barrier()
    return cells
