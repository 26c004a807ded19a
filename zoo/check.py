#!/usr/bin/env python3
"""Plants one fault of a node at a time and asks `ringleader check` for it by name.

    zoo/check.py --bin target/release/ringleader               on a node with GPUs and PyTorch, as root
    zoo/check.py --bin target/debug/ringleader --no-gpu        anywhere: faults that need no GPU
    zoo/check.py --record DIR                                  also keeps each snapshot (node-json), for tests

It ends everything it starts, by pid. It changes /dev/shm only inside its own mount namespace and limits only for the
processes of its own job. Its interface is a TUN device that disappears with it. It resets and sets nothing on the GPU.
"""

import argparse
import contextlib
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Job:
    """Ranks of one small job, started like torchrun: a launcher as parent, variables in the environment."""

    def __init__(self, options, n_ranks, environ=None, limits=None, per_rank=None, port=None, arguments=()):
        self.folder = tempfile.mkdtemp(prefix="zoo-")
        self.port = port or free_port()
        ready = os.path.join(self.folder, "ready")
        command = [sys.executable, str(HERE / "jobs" / "steps.py"), "--seconds", "120", "--ready", ready, *arguments]
        # A separate launcher process, so that the parent of the ranks is not this script.
        spec = []
        for rank in range(n_ranks):
            env = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(n_ranks),
                "LOCAL_WORLD_SIZE": str(n_ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.port),
                "TORCHELASTIC_RUN_ID": f"zoo-{os.getpid()}",
                "NCCL_NVLS_ENABLE": "0",
                "NCCL_DEBUG": "WARN",
                "ZOO_GPUS": "0" if options.no_gpu else str(n_ranks),
                **(environ or {}),
                **((per_rank or {}).get(rank, {})),
            }
            spec.append(env)
        launcher = Path(self.folder) / "torchrun.py"
        launcher.write_text(LAUNCHER)
        self.process = subprocess.Popen(
            [sys.executable, str(launcher), json.dumps({"command": command, "ranks": spec, "limits": limits or {}})],
            stdout=subprocess.PIPE,
            stderr=open(os.path.join(self.folder, "stderr"), "w"),
            start_new_session=True,
            text=True,
        )
        self.pids = json.loads(self.process.stdout.readline())
        wait_until = time.monotonic() + (20 if options.no_gpu else 90)
        self.is_ready = False
        while time.monotonic() < wait_until and self.process.poll() is None:
            if os.path.exists(ready):
                self.is_ready = True
                break
            time.sleep(0.05)
        time.sleep(0.3)

    def end(self):
        for pid in [*self.pids, self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


# Starts the ranks, prints their pids, and waits for them (unless a zombie is wanted).
LAUNCHER = '''
import json, os, resource, subprocess, sys, time
plan = json.loads(sys.argv[1])
def limit():
    for name, value in plan["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
children = []
for env in plan["ranks"]:
    env = {**os.environ, **env}
    children.append(subprocess.Popen(plan["command"], env=env, preexec_fn=limit))
print(json.dumps([child.pid for child in children]), flush=True)
while True:
    time.sleep(3600)
'''


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check(options, *arguments, prefix=(), name):
    """Runs the check; returns its report and duration."""
    begin = time.monotonic()
    command = [*prefix, options.bin, "check", "--format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    took = time.monotonic() - begin
    if done.returncode not in (0, 4):
        raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr}")
    if options.record:
        folder = Path(options.record)
        folder.mkdir(parents=True, exist_ok=True)
        snapshot = subprocess.run(
            [*prefix, options.bin, "check", "--format", "node-json", *arguments], capture_output=True, timeout=60
        )
        (folder / f"{name}.json").write_bytes(snapshot.stdout)
    return json.loads(done.stdout), took


def bad(report, least="warn"):
    """Failed checks, with the subjects and texts of their findings."""
    levels = {"skipped": 0, "ok": 1, "warn": 2, "fail": 3}
    return {
        c["id"]: (c["verdict"], c["summary"] + " | " + " | ".join(f'{i["subject"]}: {i["text"]}' for i in c["items"]))
        for c in report["checks"]
        if levels[c["verdict"]] >= levels[least]
    }


def in_small_shm(options, kib):
    """Moves this process into a mount namespace with its own /dev/shm."""
    script = f'mount -t tmpfs -o size={kib}k tmpfs /dev/shm && {{ [ -z "$ZOO_FILL" ] || head -c "$ZOO_FILL" /dev/zero > /dev/shm/filler; }}; exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


@contextlib.contextmanager
def job(options, n_ranks=None, **more):
    started = Job(options, n_ranks or options.ranks, **more)
    try:
        yield started
    finally:
        started.end()


# Each fault: a generator of (check that must name it, words that its answer must contain, report, seconds).


def clean(options):
    with job(options):
        report, took = check(options, name="clean")
        assert took < 2.0, f"took {took:.2f} s"
        wrong = bad(report)
        assert not wrong, wrong
        return f"{took:.2f} s, {sum(c['verdict'] == 'ok' for c in report['checks'])} ok"


def clean_quick(options):
    report, took = check(options, "--quick", name="clean-quick")
    assert took < 0.5, f"took {took:.2f} s"
    assert not bad(report), bad(report)
    return f"{took:.2f} s"


def expect(report, check_id, *words, only=()):
    """The check names it, and no other check outside of `only` fails."""
    wrong = bad(report)
    assert check_id in wrong, f"{check_id} is silent; bad: {wrong}"
    verdict, text = wrong[check_id]
    for word in words:
        assert str(word) in text, f"{check_id} does not say {word!r}: {text}"
    others = {c: t for c, t in bad(report, "fail").items() if c != check_id and c not in only}
    assert not others, f"others fail too: {others}"
    return f"{check_id} {verdict}: {text[:100]}"


def shm_small(options):
    report, _ = check(options, prefix=in_small_shm(options, 32768), name="shm-small")
    return expect(report, "shm-space")


def shm_full(options):
    os.environ["ZOO_FILL"] = str(4 << 30)
    try:
        report, _ = check(options, prefix=in_small_shm(options, 1048576), name="shm-full")
    finally:
        del os.environ["ZOO_FILL"]
    return expect(report, "shm-space", only=("storage",))


def shm_stale_and_live(options):
    stale, live = f"/dev/shm/nccl-Zoo{os.getpid()}s", f"/dev/shm/nccl-Zoo{os.getpid()}l"
    for path in (stale, live):
        with open(path, "wb") as file:
            file.truncate(1 << 20)
    old = time.time() - 7200
    os.utime(stale, (old, old))
    os.utime(live, (old, old))
    try:
        with open(live, "r+b") as file:
            held = mmap.mmap(file.fileno(), 1 << 20)
        report, _ = check(options, name="shm-stale-and-live")
        held.close()
    finally:
        os.unlink(stale)
        os.unlink(live)
    said = expect(report, "shm-stale", os.path.basename(stale))
    whole = json.dumps([c for c in report["checks"] if c["id"] == "shm-stale"])
    assert os.path.basename(live) not in whole, "a segment that is mapped was called stale"
    return said


def memlock(options):
    with job(options, limits={"RLIMIT_MEMLOCK": 65536}):
        report, _ = check(options, name="memlock")
        # Without an RDMA device the limit is harmless: a warning at most.
        limits = [c for c in report["checks"] if c["id"] == "limits"][0]
        assert "locked memory" in json.dumps(limits).lower(), limits
        return f'limits {limits["verdict"]}: {limits["summary"][:100]}'


def open_files(options):
    with job(options, limits={"RLIMIT_NOFILE": 256}):
        report, _ = check(options, name="open-files")
        return expect(report, "limits", "256 files")


def master_port_taken(options):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        plain = argparse.Namespace(**{**vars(options), "no_gpu": True})
        with job(plain, port=port):
            report, _ = check(options, name="master-port-taken")
            return expect(report, "master-port", os.getpid())


def master_address(options):
    plain = argparse.Namespace(**{**vars(options), "no_gpu": True})
    with job(plain, environ={"MASTER_ADDR": "no-such-host.invalid"}):
        report, _ = check(options, name="master-address")
        return expect(report, "master-address", "no-such-host.invalid", only=("master-port",))


@contextlib.contextmanager
def tun(name, address):
    """An interface that is up and has an address, but reaches nothing."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, 0x400454CA, struct.pack("16sH14x", name.encode(), 0x0001 | 0x1000))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        where = struct.pack("16sH2s4s8x", name.encode(), socket.AF_INET, b"\0\0", socket.inet_aton(address))
        fcntl.ioctl(control, 0x8916, where)
        mask = struct.pack("16sH2s4s8x", name.encode(), socket.AF_INET, b"\0\0", socket.inet_aton("255.255.255.0"))
        fcntl.ioctl(control, 0x891C, mask)
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", name.encode(), 0x1 | 0x40))
    try:
        yield
    finally:
        os.close(device)


def dead_interface(options):
    plain = argparse.Namespace(**{**vars(options), "no_gpu": True})
    with tun("zoo0", "10.231.77.1"):
        with job(plain, environ={"NCCL_SOCKET_IFNAME": "zoo0", "MASTER_ADDR": "10.231.77.2"}):
            report, _ = check(options, name="dead-interface")
            wrong = bad(report)
            named = [c for c in ("master-address", "peers-reachable", "interface-choice") if c in wrong]
            assert named and any("10.231.77.2" in wrong[c][1] or "zoo0" in wrong[c][1] for c in named), wrong
            return f"{named[0]}: {wrong[named[0]][1][:100]}"


def stopped_rank(options):
    with job(options) as running:
        os.kill(running.pids[-1], signal.SIGSTOP)
        time.sleep(0.2)
        report, _ = check(options, name="stopped-rank")
        return expect(report, "job-processes", f"pid {running.pids[-1]}", "stop")


def zombie(options):
    with job(options) as running:
        os.kill(running.pids[-1], signal.SIGKILL)
        time.sleep(0.3)
        report, _ = check(options, name="zombie")
        return expect(report, "job-processes", f"pid {running.pids[-1]}", "zombie")


def orphan(options):
    """An orphaned rank of an earlier run, beside a running job."""
    plain = argparse.Namespace(**{**vars(options), "no_gpu": True})
    earlier = Job(plain, 1, environ={"TORCHELASTIC_RUN_ID": "earlier-run", "TORCHELASTIC_RESTART_COUNT": "0"})
    try:
        os.kill(earlier.process.pid, signal.SIGKILL)
        earlier.process.wait()
        with job(options):
            report, _ = check(options, name="orphan")
            return expect(report, "job-orphans", f"pid {earlier.pids[0]}")
    finally:
        earlier.end()


def other_environment(options):
    last = options.ranks - 1
    plain = argparse.Namespace(**{**vars(options), "no_gpu": True})
    with job(plain, per_rank={0: {"NCCL_ALGO": "Ring"}, last: {"NCCL_ALGO": "Tree"}}):
        report, _ = check(options, name="other-environment")
        return expect(report, "job-environment", "NCCL_ALGO")


def illegal_access(options):
    if options.no_gpu:
        return None
    with job(options, arguments=["--illegal-access", str(options.ranks - 1)]):
        time.sleep(3)
        report, _ = check(options, name="illegal-access")
        xid = [c for c in report["checks"] if c["id"] == "xid"][0]
        assert xid["verdict"] in ("warn", "fail") and "31" in json.dumps(xid), xid
        prolog, _ = check(options, "--for", "prolog", name="illegal-access-prolog")
        assert not [c for c in prolog["checks"] if c["id"] == "xid" and c["verdict"] == "fail" and c["drains"]], (
            "a program's own illegal access must not drain the node"
        )
        return f'xid {xid["verdict"]}: {xid["summary"][:100]}'


FAULTS = [
    clean, clean_quick, shm_small, shm_full, shm_stale_and_live, memlock, open_files, master_port_taken, master_address,
    dead_interface, stopped_rank, zombie, orphan, other_environment, illegal_access,
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/ringleader")
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--record")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    if not options.ranks:
        options.ranks = 4 if options.no_gpu else n_gpus()
    n_wrong = 0
    for fault in FAULTS:
        name = fault.__name__.replace("_", "-")
        if options.only and name not in options.only:
            continue
        try:
            said = fault(options)
            print(f"{'skipped' if said is None else 'right':8} {name:20} {said or ''}", flush=True)
        except (AssertionError, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            n_wrong += 1
            print(f"{'WRONG':8} {name:20} {str(error)[:1500]}", flush=True)
    sys.exit(1 if n_wrong else 0)


def n_gpus():
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return max(1, sum(line.startswith("GPU ") for line in found.splitlines()))


if __name__ == "__main__":
    main()
