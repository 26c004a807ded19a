#!/usr/bin/env python3
"""Starts ranks like a launcher, but fast: importing PyTorch takes seconds, so one process imports it without touching CUDA
and forks every job.

    zoo/launch.py serve            requests and answers are JSON lines on stdin and stdout (see `serve`)

A forked rank shows its own command line and environment in /proc, like a rank started by torchrun. From outside only the
parent of the launcher differs.
"""

import atexit
import ctypes
import itertools
import json
import os
import runpy
import select
import signal
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# Size of the memory behind the command line and the environment in /proc.
PAD = 16384


def reserve():
    """Restarts this program with long arguments and a long environment, to reserve space for its children."""
    if os.environ.get("ZOO_PAD") is None:
        environment = {**os.environ, "ZOO_PAD": "x" * PAD, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "x" * 2048], environment)


def dress(arguments, environment):
    """Sets the contents of /proc/self/cmdline, /proc/self/environ and getenv."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = (int(fields[n - 3]) for n in (48, 49, 50, 51))
    # First the C library's own table, which points into the memory that is overwritten next.
    os.environ.clear()
    os.environ.update(environment)
    for start, end, parts in (
        (arg_start, arg_end, arguments),
        (env_start, env_end, [f"{key}={value}" for key, value in environment.items()]),
    ):
        text = b"".join(part.encode() + b"\0" for part in parts)
        if len(text) >= end - start:
            raise ValueError(f"{len(text)} bytes do not fit into {end - start}")
        ctypes.memmove(start, text + b"\0" * (end - start - len(text)), end - start)


def to_file(path):
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def end_with_parent():
    """Nothing remains if the runner is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def note(path, event, **more):
    line = json.dumps({"event": event, "wall": time.time(), "mono": time.monotonic(), **more}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def run_to_end(body):
    """Runs the body of a forked process and exits like an interpreter."""
    code = 0
    try:
        body()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def launcher(spec):
    """The parent of the ranks. `keep`: waits until all have ended, even if one fails."""
    os.setsid()
    end_with_parent()
    to_file(spec["log"])
    base = {**spec["env"], "WORLD_SIZE": str(spec["world"]), "MASTER_PORT": str(spec["port"])}
    dress([sys.executable, "-m", "zoo.launcher", f"--nproc-per-node={spec['world']}", spec["program"]], base)
    if spec.get("planted"):
        note(spec["truth"], "planted", **spec["planted"])
    children = {}
    for rank in range(spec["world"]):
        if rank in spec["absent"]:
            continue
        pid = os.fork()
        if pid == 0:
            run_to_end(lambda rank=rank: a_rank(spec, base, rank))
        children[pid] = rank
    note(spec["truth"], "ranks", pids={str(rank): pid for pid, rank in children.items()})
    worst = 0
    while children:
        pid, status = os.waitpid(-1, 0)
        if pid in children:
            rank, code = children.pop(pid), os.waitstatus_to_exitcode(status)
            note(spec["truth"], "exit", rank=rank, pid=pid, code=code)
            worst = worst or code
    sys.exit(1 if worst else 0)


def a_rank(spec, base, rank):
    end_with_parent()
    node = spec["nodes"][rank] if spec["nodes"] else None
    if node:
        import netns

        netns.enter(node, f"node{rank}")
    local = {
        "RANK": str(rank),
        "LOCAL_RANK": "0" if node else str(rank),
        "LOCAL_WORLD_SIZE": "1" if node else str(spec["world"]),
        "GROUP_RANK": str(rank) if node else "0",
        "ROLE_RANK": str(rank),
        "PYTHONUNBUFFERED": "1",
    }
    if node:
        local["NCCL_HOSTID"] = f"node{rank}"
    environment = {**base, **local, **spec["rank_env"].get(str(rank), {})}
    dress([sys.executable, "-u", spec["program"], "--settings", spec["settings"]], environment)
    import train

    train.main(["--settings", spec["settings"]])


def flight_recorder(request):
    """Runs PyTorch's analyzer over a folder of dumps, with its output to a file."""
    to_file(request["out"])
    signal.alarm(30)
    sys.argv = ["fr_trace", *request["arguments"]]
    runpy.run_module("torch.distributed.flight_recorder.fr_trace", run_name="__main__")


def serve():
    """{"id": 1, "do": "job" | "fr", …} -> {"id": 1, "pid": P}, and {"exited": P, "code": C} when it has ended."""
    if "--no-torch" not in sys.argv:
        import torch  # noqa: F401
        import torch.distributed.fsdp  # noqa: F401
        import torch.nn.parallel  # noqa: F401
        import torch.utils.data  # noqa: F401
        import torch._dynamo  # noqa: F401

        from jobs import kinds  # noqa: F401

        if torch.cuda.is_initialized():
            raise RuntimeError("CUDA was touched before the fork")
    import train  # noqa: F401

    say({"ready": os.getpid(), "threads": len(os.listdir("/proc/self/task"))})
    pending, children = b"", set()
    while True:
        if select.select([0], [], [], 0.05)[0]:
            got = os.read(0, 65536)
            if not got:
                break
            pending += got
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                run_to_end(lambda request=request: {"job": launcher, "fr": flight_recorder}[request["do"]](request))
            children.add(pid)
            say({"id": request["id"], "pid": pid})
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            children.discard(pid)
            say({"exited": pid, "code": os.waitstatus_to_exitcode(status)})


def say(what):
    os.write(1, (json.dumps(what) + "\n").encode())


# Below the ephemeral ports, so that no connection of another job takes one before we listen on it.
PORTS = itertools.cycle(range(20000 + os.getpid() % 5000, 32000))


def free_port():
    for port in itertools.islice(PORTS, 12000):
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue
    raise OSError("no port is free")


if __name__ == "__main__":
    reserve()
    serve()
