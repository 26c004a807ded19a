import jax, jax.numpy as jnp
from mpi4py import MPI
from mpi4jax import send, recv

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

def swap_first(args):
    x, t = args
    got, t = recv(x, source=1, comm=comm, token=t)
    t = send(x + 1, dest=1, comm=comm, token=t)
    more, t = recv(x, source=1, comm=comm, token=t)
    return got + more, t

def swap_second(args):
    x, t = args
    t = send(x + 2, dest=0, comm=comm, token=t)
    got, t = recv(x, source=0, comm=comm, token=t)
    t = send(got - x, dest=0, comm=comm, token=t)
    return got, t

@jax.jit
def rounds(x, my_rank):
    t = jax.lax.create_token()
    a, t = jax.lax.cond(my_rank == 0, swap_first, swap_second, (x, t))
    # then the other way round
    b, t = jax.lax.cond(my_rank == 1, swap_first, swap_second, (a, t))
    return a, b

a, b = rounds(jnp.ones((1 << 20,)), rank)
print(rank, a.sum(), b.sum(), flush=True)
