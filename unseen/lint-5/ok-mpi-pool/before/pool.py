import atexit
import sys
import traceback

from mpi4py import MPI


class Pool:
    """Process 0 hands out tasks; the others work until they are told to leave."""

    def __init__(self, comm=None):
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.master = 0
        self.rank = self.comm.Get_rank()
        atexit.register(lambda: Pool.close(self))

        if not self.is_master():
            try:
                self.wait()
            except Exception:
                traceback.print_exc()
                sys.stderr.flush()
                MPI.COMM_WORLD.Abort()
            finally:
                sys.exit(0)

        self.workers = set(range(1, self.comm.Get_size()))
        if not self.workers:
            raise ValueError("at least two processes are needed")

    def is_master(self):
        return self.rank == self.master

    def wait(self):
        if self.is_master():
            return
        status = MPI.Status()
        while True:
            task = self.comm.recv(source=self.master, tag=MPI.ANY_TAG, status=status)
            if task is None:
                break
            function, argument = task
            self.comm.ssend(function(argument), self.master, status.tag)

    def map(self, function, arguments):
        if not self.is_master():
            self.wait()
            return None
        free = self.workers.copy()
        tasks = [(number, (function, argument)) for number, argument in enumerate(arguments)]
        results, pending = [None] * len(tasks), len(tasks)
        while pending:
            while free and tasks:
                number, task = tasks.pop()
                self.comm.send(task, dest=free.pop(), tag=number)
            status = MPI.Status()
            result = self.comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
            free.add(status.source)
            results[status.tag] = result
            pending -= 1
        return results

    def close(self):
        if not self.is_master():
            return
        for worker in self.workers:
            self.comm.send(None, worker, 0)
