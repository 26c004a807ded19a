#!/usr/bin/env python3
"""Exports metrics of `watch` to a real collector over OTLP, as protobuf and as JSON, and looks at what the collector prints.

    pip install rotel                       # a collector written in Rust; CPython 3.11 on x86_64
    tools/otlp_test.py target/debug/ringleader
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import rotel

AGENT = pathlib.Path(rotel.__file__).parent / "rotel-agent"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def main(program):
    grpc, http = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/said", "wb") as said:
        command = [AGENT, "start", "--exporter", "blackhole", "--debug-log", "metrics", "--debug-log-verbosity", "detailed",
                   "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--otlp-http-endpoint", f"127.0.0.1:{http}"]
        collector = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        try:
            until = time.time() + 20
            while not listens(http):
                assert time.time() < until and collector.poll() is None, pathlib.Path(said.name).read_text()
                time.sleep(0.1)
            seen = 0
            for protocol in ("http/protobuf", "http/json"):
                env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{http}", OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                           OTEL_METRIC_EXPORT_INTERVAL="500", OTEL_SERVICE_NAME=f"watch-{protocol[5:]}")
                watch = subprocess.run([program, "watch", "--stay", "--no-screen", "--for", "3", "--out", folder, "--rings", folder],
                                       env=env, capture_output=True, check=False)
                assert b"OTLP" not in watch.stderr, watch.stderr.decode()
                until = time.time() + 5
                while f"watch-{protocol[5:]}" not in (text := pathlib.Path(said.name).read_text()):
                    assert time.time() < until, (watch, text[-2000:])
                    time.sleep(0.2)
                assert "ringleader_" in text[seen:], text[seen:][:2000]
                print(f"ok: {protocol}: the collector has ringleader's metrics")
                seen = len(text)
        finally:
            collector.terminate()
            collector.wait(timeout=10)


main(sys.argv[1])
