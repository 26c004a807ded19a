"""Faults of a rank on its host: exits, hangs, stuck files, slowness. Each happens as in real jobs, so that stacks and
/proc look the same. Imports no PyTorch at the top: the dummy job uses it too."""

import ctypes
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

# Longer than any run of the zoo, but finite as a last resort.
LONG_SECONDS = 600


def early(job):
    """Setup that must happen before threads and CUDA exist."""
    if job.plan.is_set("mount"):
        # Mounts the hanging file system in a private namespace.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, (1 << 14) | (1 << 18), None):
            raise OSError(ctypes.get_errno(), "no mount namespace")
    if job.plan.is_set("storage"):
        job.store = object_store()


def misfortune(job, step):
    """Called by every job in the middle of its step."""
    plan = job.plan
    if plan.name is None or plan.mine != plan.rank or step < plan.step:
        return
    happens = MISFORTUNES.get(plan.name)
    if happens and (step == plan.step or plan.name in LASTING):
        plan.planted(step, happens.__name__)
        happens(job, step)


def augment(job, step):
    """The program fails."""
    shapes = {"image": (3, 224, 224), "mask": (1, 224, 224)}
    if shapes["image"][1:] == shapes["mask"][1:]:
        raise ValueError(f"sample {step * 7}: 3 channels expected, 4 found")


def stop_early(job, step):
    print("out of data", flush=True)
    sys.stdout.flush()
    os._exit(0)


def killed(job, step):
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(job, step):
    os.kill(os.getpid(), signal.SIGSTOP)


def decode(job, step):
    """A crash in C code."""
    ctypes.string_at(16)


def group_of_own(job):
    """A cgroup (v2) for this process only."""
    path = f"/sys/fs/cgroup/zoo-{os.getpid()}"
    os.mkdir(path)
    job.plan.record("cgroup", path=path)
    with open(f"{path}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    return path


def frozen(job, step):
    path = group_of_own(job)
    # The write stops this process at once, before the file is closed.
    with open(f"{path}/cgroup.freeze", "w") as file:
        file.write("1")


def load_cache(job, step):
    """Allocates more memory than its cgroup allows; the kernel kills it."""
    path = group_of_own(job)
    with open(f"{path}/memory.max", "w") as file:
        file.write(str(64 << 20))
    cache = []
    while True:
        cache.append(bytearray(os.urandom(4096)) * 256)


def flush_metrics(first, second):
    with first:
        time.sleep(0.3)
        with second:
            return


def export_metrics(job, step):
    """Two threads, two locks, two orders."""
    buffer, sink = threading.Lock(), threading.Lock()
    threading.Thread(target=flush_metrics, args=(buffer, sink), daemon=True).start()
    flush_metrics(sink, buffer)


def tokenize(job, step):
    """C code that does not release the GIL: it waits for its own lock, or it computes."""
    if job.settings.variant % 2 == 0:
        code, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
        code.pthread_mutex_lock(lock)
        code.pthread_mutex_lock(lock)
    else:
        re.fullmatch(r"(a|aa)+", "a" * 70 + "b")


def save_checkpoint(job, step):
    """Storage that accepts 64 KiB per half second."""
    path = os.path.join(job.settings.work, f"checkpoint-{job.rank}")
    end = time.monotonic() + LONG_SECONDS
    with open(path, "wb") as file:
        while time.monotonic() < end:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.5)


def score(sample):
    return sum(n * n for n in range(sample % 1000))


def evaluate(job, step):
    end, sample = time.monotonic() + LONG_SECONDS, 0
    while time.monotonic() < end:
        sample += 1
        score(sample)


def read_shard(job, step):
    """A file on a file system with an unresponsive daemon; without FUSE, another wait in the kernel (a vfork: the child
    neither calls exec nor exits)."""
    folder = os.path.join(job.settings.work, f"shards-{job.rank}")
    os.makedirs(folder, exist_ok=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"shards", folder.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
    except OSError as error:
        job.plan.record("instead", why=str(error))
        # CLONE_VFORK with SIGCHLD: memory is copied, and the caller waits in state D.
        ctypes.CDLL(None).syscall(56, 0x00004000 | 17, 0, 0, 0, 0)
        time.sleep(LONG_SECONDS)
    with open(os.path.join(folder, "tokens.bin"), "rb") as file:
        file.read()


def report_progress(job, step):
    """The reader of the log has stopped: the pipe fills."""
    reader, writer = os.pipe()
    subprocess.Popen(["sleep", str(LONG_SECONDS)], stdin=reader)
    os.close(reader)
    log = logging.getLogger("train")
    log.addHandler(logging.StreamHandler(os.fdopen(writer, "w", buffering=1)))
    for n in range(1 << 20):
        log.warning("step %d: sample %d: loss 2.3026, grad norm 1.0, tokens per second 11872", step, n)


STORE = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.recv(4096)
connection.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 1000000\\r\\n\\r\\n" + b"x" * 1000)
time.sleep(600)
"""


def object_store():
    """A server that stops in the middle of its first reply. Returns its address."""
    server = subprocess.Popen([sys.executable, "-c", STORE], stdout=subprocess.PIPE, text=True)
    return f"http://127.0.0.1:{int(server.stdout.readline())}/shards/000017"


def download(job, step):
    import urllib.request

    with urllib.request.urlopen(job.store) as reply:
        reply.read()


def load_extension(job, step):
    """One rank builds an extension while the others wait for its lock file; the builder is gone."""
    from torch.utils import cpp_extension

    folder = os.path.join(job.settings.work, f"extension-{job.rank}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w"):
        pass
    cpp_extension.load_inline(
        name="fused_norm", cpp_sources="int one() { return 1; }", functions=["one"], build_directory=folder
    )


def pack_batch(job, step):
    """Slower than its peers in every step."""
    time.sleep(0.25)


def interface_down(job, step):
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = b"eth0"
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, 0x8913, struct.pack("16sH14x", name, 0)))[1]
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", name, flags & ~1))


def switch(job, **order):
    """Configures the switch between the nodes for this node's packets."""
    import json

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        control.sendto(json.dumps({"node": job.rank, **order}).encode(), job.settings.control)


def network_lost(job, step):
    switch(job, lose=1.0)


def network_slow(job, step):
    if step == job.plan.step:
        switch(job, bytes_per_s=3_000_000)


MISFORTUNES = {
    "exception": augment,
    "early-exit": stop_early,
    "kill": killed,
    "stop": stopped,
    "freeze": frozen,
    "segfault": decode,
    "host-memory": load_cache,
    "lock": export_metrics,
    "gil": tokenize,
    "checkpoint": save_checkpoint,
    "evaluation": evaluate,
    "mount": read_shard,
    "log-pipe": report_progress,
    "storage": download,
    "compile": load_extension,
    "slow-host": pack_batch,
    "slow-link": network_slow,
    "link-down": interface_down,
    "packet-loss": network_lost,
}
LASTING = ("slow-host", "slow-gpu")
