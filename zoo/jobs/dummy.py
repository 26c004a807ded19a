"""A job without PyTorch or GPU, for tests of the runner: steps, a file barrier between ranks, and the faults that need
only a process."""

import os
import time

from jobs import host
from jobs.plan import Plan


def run(settings):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plan = Plan(settings, rank)
    plan.started()
    job = Dummy(settings, plan, rank, world)
    for step in range(settings.steps):
        time.sleep(settings.step_ms / 1000)
        host.misfortune(job, step)
        meet(job, step)
        if step == 0:
            plan.record("first-step")
    plan.record("finished")


class Dummy:
    def __init__(self, settings, plan, rank, world):
        self.settings, self.plan, self.rank, self.world = settings, plan, rank, world


def meet(job, step):
    """A barrier: every rank waits until all have reached it."""
    folder = os.path.join(job.settings.work, "meet")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{step}-{job.rank}"), "w"):
        pass
    while not all(os.path.exists(os.path.join(folder, f"{step}-{rank}")) for rank in range(job.world)):
        time.sleep(0.01)
