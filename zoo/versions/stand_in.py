"""A stand-in for NCCL and the job: it loads the plugin and calls interface 4 as NCCL 2.27 does, without a GPU.

`self_test` runs it through the runner, once correct and once for each fault that its program name selects. The check for that
fault must fail. If it also hangs without the plugin, the plugin is not the reason."""

import argparse
import concurrent.futures
import ctypes
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The fault, the job that shows it, and the check that must fail; `right` passes all.
WRONG = {
    "count": ("all", "calls"),
    "kind": ("all", "calls"),
    "swallowed": ("all", "calls"),
    "endless": ("all", "ended"),
    "hangs": ("all", "ends"),
    "dies": ("all", "ends"),
    "ranks": ("all", "communicators"),
    "lingers": ("all", "communicators"),
    "entered": ("late", "late"),
    "unseen": ("late", "late"),
    "forgotten": ("late", "over"),
    "mingled": ("several", "calls"),
    "early": ("several", "late"),
}
VERSION = (2, 27, 7)
GROUP, COLL, P2P, KERNEL, STOP = 1, 2, 4, 64, 22
TYPES = {"ncclUint8": 1, "ncclBfloat16": 2, "ncclFloat32": 4, "ncclInt64": 8}


class Coll(ctypes.Structure):
    _fields_ = [("sequence", ctypes.c_uint64), ("function", ctypes.c_char_p), ("send", ctypes.c_void_p), ("receive", ctypes.c_void_p),
                ("count", ctypes.c_size_t), ("root", ctypes.c_int), ("datatype", ctypes.c_char_p), ("channels", ctypes.c_uint8),
                ("warps", ctypes.c_uint8), ("algorithm", ctypes.c_char_p), ("protocol", ctypes.c_char_p)]  # fmt: skip


class P2p(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char_p), ("buffer", ctypes.c_void_p), ("datatype", ctypes.c_char_p),
                ("count", ctypes.c_size_t), ("peer", ctypes.c_int), ("channels", ctypes.c_uint8)]  # fmt: skip


class Kernel(ctypes.Structure):
    _fields_ = [("channel", ctypes.c_uint8), ("timer", ctypes.c_uint64)]


class Of(ctypes.Union):
    _fields_ = [("coll", Coll), ("p2p", P2p), ("kernel", Kernel)]


class Descriptor(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint8), ("parent", ctypes.c_void_p), ("rank", ctypes.c_int), ("of", Of)]


INIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_uint64,
                        ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)  # fmt: skip
START = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Descriptor))
HANDLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
RECORD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Table(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("init", INIT), ("start", START), ("stop", HANDLE), ("record", RECORD), ("finalize", HANDLE)]


class Rank:
    """What `job.cc` does, but calls the plugin directly."""

    def __init__(self, how, rank, folder):
        self.how, self.rank, self.folder = how, rank, folder
        self.table = Table.in_dll(ctypes.CDLL(os.environ["NCCL_PROFILER_PLUGIN"]), "ncclProfiler_v4")
        self.mask, self.comms = ctypes.c_int(0), 0

    def say(self, **what):
        print(json.dumps(what), flush=True)

    def comm(self, turned=False, key=None):
        context, number = ctypes.c_void_p(), self.comms
        rank = 1 - self.rank if turned else self.rank
        told = 0 if self.how == "ranks" else rank
        self.table.init(ctypes.byref(context), ctypes.byref(self.mask), None, key or 0xC0 + number, 1, 2, told, None)
        self.comms += 1
        return context, number, rank

    def start(self, comm, kind, parent, of):
        handle = ctypes.c_void_p()
        self.table.start(comm[0], ctypes.byref(handle), ctypes.byref(Descriptor(kind, parent, comm[2], of)))
        return handle

    def end(self, comm, op, channels, wait_for=None):
        kernels = [self.start(comm, KERNEL, op, Of(kernel=Kernel(channel, time.monotonic_ns()))) for channel in range(channels)]
        while wait_for and not (self.folder / wait_for).exists():
            time.sleep(0.005)
        for kernel in kernels:
            timer = ctypes.c_uint64(time.monotonic_ns())
            self.table.record(kernel, STOP, ctypes.byref(timer))
            self.table.stop(kernel)

    def call(self, comm, function, count, datatype="ncclFloat32", root=-1, peer=-1, runs=1, wait_for=None, is_quiet=False):
        if not is_quiet:
            self.say(call=function, comm=comm[1], count=count, datatype=datatype, root=root, peer=peer, runs=runs)
        if function in ("Broadcast", "AllGather"):
            count, datatype = count * TYPES[datatype], "ncclInt8"
        is_odd = self.rank == 1 and comm[1] == 0 and function == "AllReduce" and count == 1003
        if is_odd and self.how == "swallowed":
            return
        count += is_odd and self.how == "count"
        name = b"Reduce" if is_odd and self.how == "kind" else function.encode()
        for _ in range(runs):
            group = self.start(comm, GROUP, None, Of())
            if peer >= 0:
                of = Of(p2p=P2p(name, None, datatype.encode(), count, peer, 1))
            else:
                of = Of(coll=Coll(0, name, None, None, count, max(root, 0), datatype.encode(), 2, 8, b"RING", b"LL"))
            op = self.start(comm, P2P if peer >= 0 else COLL, group, of)
            self.table.stop(op)
            self.table.stop(group)
            if not (is_odd and self.how == "endless") and not (count == 81 and self.how == "forgotten" and self.rank == 0):
                self.end(comm, op, 1 if peer >= 0 else 2, wait_for)

    def exchange(self, comm, count, runs=1):
        for function in ("Send", "Recv"):
            self.call(comm, function, count, "ncclUint8", peer=1 - comm[2], runs=runs)

    def operations(self, comm):
        self.call(comm, "AllReduce", 1003)
        self.call(comm, "Broadcast", 2005, "ncclBfloat16", 1)
        self.call(comm, "AllGather", 307, "ncclInt64")
        self.call(comm, "ReduceScatter", 411)
        self.exchange(comm, 5009)

    def all(self, communicators):
        self.say(step="operations")
        world = self.comm()
        self.operations(world)
        self.say(done="operations")
        self.say(step="split")
        turned = self.comm(True)
        self.call(turned, "AllReduce", 31)
        self.exchange(turned, 33)
        self.say(done="split")
        self.say(step="communicators")
        for made in range(communicators):
            one = self.comm()
            self.call(one, "AllReduce", 41 + made)
            if not (self.how == "lingers" and made == 3):
                self.table.finalize(one[0])
        self.say(done="communicators")
        self.say(step="graph")
        self.call(world, "AllReduce", 21, runs=5)
        self.say(done="graph")
        self.say(step="destroy")
        if self.how == "dies" and self.rank == 0:
            os.abort()
        if self.how in ("hangs", "stuck"):
            time.sleep(60)
        self.table.finalize(turned[0])
        self.table.finalize(world[0])
        self.say(done="destroy")

    def late(self):
        self.say(step="late")
        world = self.comm()
        for _ in range(20):
            self.call(world, "AllReduce", 61)
            time.sleep(0.01)
        if self.how == "entered" and self.rank == 1:
            self.call(world, "AllReduce", 81, is_quiet=True, wait_for=None)
        (self.folder / f"ready-{self.rank}").touch()
        if self.rank == 1:
            self.wait("enter")
        if not (self.how == "unseen" and self.rank == 0):
            if self.rank == 1:
                (self.folder / "entered-81").touch()
            self.call(world, "AllReduce", 81, wait_for="entered-81")
        (self.folder / f"over-{self.rank}").touch()
        if self.rank == 1:
            self.wait("never")
        self.call(world, "AllReduce", 91, wait_for="never")

    def several(self):
        if self.rank == 1:
            return
        self.say(step="init")
        ranks = [self.comm(key=0xD0), self.comm(True, key=0xD0)]
        self.say(done="init")
        self.say(step="operations")
        for _ in range(20):
            for comm in ranks:
                self.call(ranks[0] if self.how == "mingled" else comm, "AllReduce", 61, is_quiet=True)
                self.say(call="AllReduce", comm=comm[1], count=61, datatype="ncclFloat32", root=-1, peer=-1, runs=1)
            time.sleep(0.01)
        for comm in ranks:
            self.exchange(comm, 5009)
        self.say(done="operations")
        self.say(step="late")
        def enter(comm):
            (self.folder / f"ready-{comm[2]}").touch()
            if comm[2] == 1:
                if self.how != "early":
                    self.wait("enter")
                (self.folder / "entered-81").touch()
            self.call(comm, "AllReduce", 81, wait_for="entered-81")

        threads = [threading.Thread(target=enter, args=(comm,)) for comm in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.say(done="late")
        self.say(step="destroy")
        for comm in ranks:
            self.table.finalize(comm[0])
        self.say(done="destroy")

    def wait(self, name):
        while not (self.folder / name).exists():
            time.sleep(0.005)


def self_test(options):
    """Needs the plugin and the reader; also runs the program if given."""
    import versions

    for name in ("plugin", "reader"):
        if not getattr(options, name):
            sys.exit(f"--{name} is missing")
        setattr(options, name, getattr(options, name).resolve())
    versions.DEADLINES.update(all=6, late=25, several=25)
    versions.LATE_SECONDS = 4 if options.bin else 0.5
    options.communicators, options.parallel, options.transports, options.budget = 6, 2, ["direct"], 0

    def one(how, job, check):
        mine = argparse.Namespace(**vars(options))
        mine.jobs = [job] if job else ["all", "late", "several"]
        with tempfile.TemporaryDirectory() as scratch:
            mine.job = Path(scratch) / how
            mine.job.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE / 'stand_in.py'} {how} \"$@\"\n")
            mine.job.chmod(0o755)
            runner = versions.Runner(mine, Path(scratch), lambda line: None)
            runner.run({VERSION: Path(scratch)})
            failed = {what: verdict for checks in runner.results[VERSION]["direct"].values() for what, verdict in checks.items()
                      if verdict.startswith("no")}  # fmt: skip
            runner.keep(Path(scratch) / "kept.tar.xz")
            assert "| 2.27.7 | 4 | direct |" in runner.table({}), runner.table({})
        return how, check, failed

    problems = []
    cases = [("right", None, None), ("stuck", "all", None), *((how, *wrong) for how, wrong in WRONG.items())]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for how, check, failed in pool.map(one, *zip(*cases)):
            print(f"{how}: {failed or 'all is well'}", flush=True)
            if (check is None) != (not failed) or (check is not None and check not in failed):
                problems.append(f"{how}: {check} was to fail, and failed has {failed}")
    print("\n".join(problems) or "the judge is right")
    return 1 if problems else 0


if __name__ == "__main__":
    if "NCCL_PROFILER_PLUGIN" not in os.environ:
        # `hangs` hangs only with the plugin, `stuck` in any case.
        time.sleep(60 if sys.argv[1] == "stuck" else 0)
        sys.exit()
    mine = Rank(sys.argv[1], int(sys.argv[2]), Path(sys.argv[4]))
    {"all": lambda: mine.all(int(sys.argv[6])), "late": mine.late, "several": mine.several}[sys.argv[5]]()
