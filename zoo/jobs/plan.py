"""Decides whether the fault happens here and now, and records it."""

import json
import os
import time


class Plan:
    def __init__(self, settings, rank):
        self.name = settings.fault
        self.rank = settings.fault_rank
        self.step = settings.fault_step
        self.variant = settings.variant
        self.truth = settings.truth
        self.mine = rank
        self.recorded = False
        # The longest step so far, in seconds, without planned pauses.
        self.longest = 0.0

    def record(self, event, **more):
        """A line of the truth file: wall time for outside observers, monotonic time for differences."""
        if not self.truth:
            return
        line = {"event": event, "wall": time.time(), "mono": time.monotonic(), "rank": self.mine, "pid": os.getpid(), **more}
        file = os.open(self.truth, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, (json.dumps(line) + "\n").encode())
        os.close(file)

    def started(self):
        with open("/proc/self/stat") as file:
            self.record("started", start=int(file.read().rpartition(")")[2].split()[19]))

    def planted(self, step, place):
        if not self.recorded:
            self.recorded = True
            self.record("planted", fault=self.name, step=step, place=place, longest_s=round(self.longest, 3))

    def is_set(self, *names):
        """Whether this rank gets the fault, at any step."""
        return self.name in names and self.mine == self.rank

    def here(self, name, step, place=""):
        """Whether this rank gets the fault now; records it as done."""
        if self.is_set(name) and step == self.step:
            self.planted(step, place or name)
            return True
        return False

    def from_here(self, name, step, place=""):
        """The same for faults that repeat in every step."""
        if self.is_set(name) and step >= self.step:
            self.planted(step, place or name)
            return True
        return False

    def everywhere(self, name, step, place=""):
        """The same for faults that involve all ranks."""
        if self.name == name and step == self.step:
            self.planted(step, place or name)
            return True
        return False
