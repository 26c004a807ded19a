#!/usr/bin/env python3
"""Exports metrics and incidents of `watch` to a real collector over OTLP, as protobuf and as JSON, and looks at what it prints.

    pip install rotel==0.0.1a15             # a collector written in Rust; CPython 3.11 on x86_64
    tools/otlp_test.py target/debug/ringleader target/debug/libringleader_nccl.so

The job is two processes that call NCCL's plugin as NCCL does (zoo/versions/stand_in.py). One is stopped by a signal for some seconds:
the collector must get a stall, a verdict that names it, the bundle, the recovery and the end. All of it listens on this machine only.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Records in their order: name, severity, attributes.
INCIDENT = [
    ("ringleader.stall", "WARN", {"suspects": "1"}),
    ("ringleader.bundle", "INFO", {}),
    ("ringleader.verdict", "ERROR", {"cause": "process-stopped", "culprit.rank": "1"}),
    ("ringleader.recovered", "INFO", {}),
    ("ringleader.ended", "INFO", {}),
]
STEPS = 360
# One rank is stopped when it has made so many: the rhythm is known by then.
STOPPED_AT = 120


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def train(folder):
    """One rank: an all_reduce after the other, each of which ends once the other rank has entered it."""
    sys.path.insert(0, str(ROOT / "zoo/versions"))
    import stand_in

    number = int(os.environ["RANK"])
    rank = stand_in.Rank("right", number, folder)
    comm = rank.comm()
    for step in range(STEPS):
        (folder / f"entered-{number}-{step}").touch()
        rank.call(comm, "AllReduce", 1024, is_quiet=True, wait_for=f"entered-{1 - number}-{step}")
        time.sleep(0.02)
    rank.table.finalize(comm[0])


class Collector:
    def __init__(self, signal_name, folder):
        import rotel

        self.grpc, self.http = free_port(), free_port()
        self.said = pathlib.Path(folder) / f"collector-{signal_name}"
        command = [pathlib.Path(rotel.__file__).parent / "rotel-agent", "start", "--exporter", "blackhole",
                   "--debug-log", signal_name, "--debug-log-verbosity", "detailed",
                   "--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc}", "--otlp-http-endpoint", f"127.0.0.1:{self.http}"]  # fmt: skip
        with open(self.said, "wb") as said:
            self.child = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)

    def __enter__(self):
        until = time.time() + 20
        while not listens(self.http):
            assert time.time() < until and self.child.poll() is None, self.text()
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(timeout=10)

    def text(self):
        return self.said.read_text(errors="replace")

    def wait_for(self, words, seconds):
        until = time.time() + seconds
        while words not in (text := self.text()):
            assert time.time() < until, f"no {words} after {seconds} s; the collector has: {text[-3000:]}"
            time.sleep(0.1)
        return text


def variables(collector, protocol, name):
    return dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.http}", OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                OTEL_METRIC_EXPORT_INTERVAL="500", OTEL_SERVICE_NAME=name)  # fmt: skip


def metrics(program, protocol, folder):
    name = f"metrics-{protocol[5:]}"
    with Collector("metrics", folder) as collector:
        watch = subprocess.run([program, "watch", "--stay", "--no-screen", "--for", "3", "--out", folder, "--rings", folder],
                               env=variables(collector, protocol, name), capture_output=True, check=False)  # fmt: skip
        assert b"OTLP" not in watch.stderr, watch.stderr.decode()
        text = collector.wait_for(name, 5)
        assert "ringleader_" in text, text[:2000]
    print(f"ok: {protocol}: the collector has ringleader's metrics")


def records(text):
    """Name, severity and attributes of each log record that the collector printed."""
    found = []
    for part in re.split(r"(?m)^LogRecord #\d+", text)[1:]:
        told = dict(re.findall(r"(?m)^\s*->\s*([\w.]+): \w+\((.*?)\)\s*$", part))
        severity = re.search(r"SeverityText: (\w+)", part)
        name = re.search(r"EventName: ([\w.]+)", part)
        body = re.search(r"Body: (.*)", part)
        found.append((name and name[1], severity and severity[1], told, body and body[1]))
    return found


def incident(program, plugin, protocol, folder):
    name = f"incident-{protocol[5:]}"
    rings = folder / "rings"
    rings.mkdir(parents=True)
    ranks = []
    with Collector("logs", folder) as collector:
        try:
            for rank in range(2):
                env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", NCCL_PROFILER_PLUGIN=plugin,
                           RINGLEADER_RING_DIR=str(rings), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29000 + os.getpid() % 1000))  # fmt: skip
                ranks.append(subprocess.Popen([sys.executable, __file__, "rank", folder], env=env, stdout=subprocess.DEVNULL))
            pids = [word for rank in ranks for word in ("--pid", str(rank.pid))]
            watch = subprocess.Popen([program, "watch", "--no-screen", "--no-ras", "--rings", rings, "--out", folder, "--interval", "0.2",
                                      "--stall-floor", "1", "--hold", "2", *pids],
                                     env=variables(collector, protocol, name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
            ranks.append(watch)
            until = time.time() + 60
            while not (folder / f"entered-1-{STOPPED_AT}").exists():
                assert time.time() < until and watch.poll() is None, "the job does not work"
                time.sleep(0.1)
            os.kill(ranks[1].pid, signal.SIGSTOP)
            collector.wait_for("ringleader.verdict", 30)
            os.kill(ranks[1].pid, signal.SIGCONT)
            said, _ = watch.communicate(timeout=60)
            assert watch.returncode == 4 and b"OTLP" not in said, (watch.returncode, said.decode())
            text = collector.wait_for("ringleader.ended", 10)
        finally:
            for child in ranks:
                if child.poll() is None:
                    child.kill()
                child.wait()
    assert name in text, text[-3000:]
    found = iter(records(text))
    for event, severity, attributes in INCIDENT:
        one = next((one for one in found if one[0] == event), None)
        assert one, f"no {event} in its place: {records(text)}"
        assert one[1] == severity and attributes.items() <= one[2].items(), one
    print(f"ok: {protocol}: the collector has a stall, its bundle, the verdict (stopped, rank 1), the recovery and the end")


def main(program, plugin):
    plugin = str(pathlib.Path(plugin).resolve())
    with tempfile.TemporaryDirectory() as folder:
        for protocol in ("http/protobuf", "http/json"):
            metrics(program, protocol, folder)
            incident(program, plugin, protocol, pathlib.Path(folder) / protocol[5:])


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        train(pathlib.Path(sys.argv[2]))
    else:
        main(*sys.argv[1:])
