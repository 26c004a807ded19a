#!/usr/bin/env python3
"""Lets a real Prometheus scrape `watch --serve` and the textfile of `check`, with the rules of deploy/prometheus as they are, until alerts fire.

    apt-get install prometheus prometheus-node-exporter
    tools/prometheus_test.py target/debug/ringleader target/debug/libringleader_nccl.so

The job is that of otlp_test.py: two processes that call NCCL's plugin. One is stopped by a signal: `TrainingJobVerdict` must fire and name
it, then `TrainingJobStalled`, once its 30 s are over; both must end after it continues. A failing check of a node is written into the
textfile: `NodeCheckFailed` must be pending (it fires after ten minutes). What Prometheus sends goes to a stand-in for the Alertmanager,
which must get both alerts. Every query of both Grafana dashboards must be one that Prometheus answers. Listens on this machine only.
"""

import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import otlp_test

ROOT = otlp_test.ROOT
DEPLOY = ROOT / "deploy"
# Queries whose answer is empty in a job that runs as this one does: no rank is late, no bus bandwidth without GPUs, nobody is silent.
MAY_BE_EMPTY = ("straggler", "bus_bandwidth", "rank_late", "== 2", "clock_", "ringleader_value_info", "node_answered")


class Prometheus:
    def __init__(self, folder, watch, node, alertmanager):
        self.port = otlp_test.free_port()
        config = (DEPLOY / "prometheus/prometheus.yml").read_text()
        # As it is, but for the ports of this test and the pace.
        for old, new in (("localhost:9400", f"127.0.0.1:{watch}"), ("localhost:9100", f"127.0.0.1:{node}"), (": 15s", ": 1s")):
            assert old in config, old
            config = config.replace(old, new)
        config += f"alerting:\n  alertmanagers:\n    - static_configs:\n        - targets: ['127.0.0.1:{alertmanager}']\n"
        (folder / "prometheus.yml").write_text(config)
        shutil.copy(DEPLOY / "prometheus/rules.yml", folder)
        self.log = folder / "prometheus.log"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                           f"--web.listen-address=127.0.0.1:{self.port}", "--rules.alert.resend-delay=1s"],
                                          stdout=log, stderr=log)  # fmt: skip

    def ask(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]

    def alerts(self):
        return {one["labels"]["alertname"]: one for one in self.ask("alerts")["alerts"]}

    def wait(self, what, seconds, told):
        until = time.time() + seconds
        while True:
            try:
                if found := told():
                    return found
                last = None
            except OSError as error:
                last = error
            assert self.child.poll() is None, self.log.read_text()[-2000:]
            assert time.time() < until, f"no {what} after {seconds} s: {last or self.alerts()}"
            time.sleep(0.3)


class Alertmanager(http.server.BaseHTTPRequestHandler):
    got = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Alertmanager.got += [(one["labels"]["alertname"], one["annotations"].get("summary", "")) for one in body]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def queries():
    """Of both dashboards, with their variables at "All"."""
    for name in ("watch", "check"):
        stack = [json.loads((DEPLOY / f"grafana/{name}.json").read_text())]
        while stack:
            one = stack.pop()
            if isinstance(one, dict):
                if "expr" in one:
                    yield name, re.sub(r"\$\w+", ".*", one["expr"])
                stack += one.values()
            elif isinstance(one, list):
                stack += one


def node(program, folder):
    """What the exporter of nodes reads: a check of this machine, and one of it made to fail."""
    textfiles = folder / "textfiles"
    textfiles.mkdir()
    file = textfiles / "ringleader.prom"
    subprocess.run([program, "check", "--quick", "--format", "prometheus", "--output", file], check=False, stdout=subprocess.DEVNULL)
    text = file.read_text()
    row = re.search(r"(?m)^ringleader_check\{.*\} [0-9]$", text)
    file.write_text(text.replace(row[0], row[0][:-1] + "2"))
    port = otlp_test.free_port()
    command = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
               f"--collector.textfile.directory={textfiles}", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    return port, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(program, plugin):
    otlp_test.STEPS = 6000
    folder = pathlib.Path(tempfile.mkdtemp())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Alertmanager)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    children = []
    try:
        rings = folder / "rings"
        rings.mkdir()
        for rank in range(2):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", NCCL_PROFILER_PLUGIN=str(pathlib.Path(plugin).resolve()),
                       RINGLEADER_RING_DIR=str(rings), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29000 + os.getpid() % 1000))  # fmt: skip
            children.append(subprocess.Popen([sys.executable, __file__, "rank", folder], env=env, stdout=subprocess.DEVNULL))
        pids = [word for child in children for word in ("--pid", str(child.pid))]
        port = otlp_test.free_port()
        children.append(subprocess.Popen([program, "watch", "--no-screen", "--no-ras", "--rings", rings, "--out", folder, "--interval", "0.2",
                                          "--stall-floor", "1", "--hold", "2", "--serve", str(port), *pids], stdout=subprocess.DEVNULL))  # fmt: skip
        node_port, exporter = node(program, folder)
        children.append(exporter)
        prometheus = Prometheus(folder, port, node_port, server.server_port)
        children.append(prometheus.child)
        up = prometheus.wait("scrapes", 40, lambda: len(prometheus.ask("query", query="up == 1")["result"]) == 2)
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert up and len(rules) == 8, rules
        until = time.time() + 90
        while not (folder / f"entered-1-{otlp_test.STOPPED_AT}").exists():
            assert time.time() < until, "the job does not work"
            time.sleep(0.1)
        assert not {"TrainingJobStalled", "TrainingJobVerdict"} & prometheus.alerts().keys(), prometheus.alerts()
        os.kill(children[1].pid, signal.SIGSTOP)
        stopped = time.time()

        def firing(name):
            return prometheus.wait(name, 100, lambda: (one := prometheus.alerts().get(name)) and one["state"] == "firing" and one)

        verdict = firing("TrainingJobVerdict")
        assert (verdict["labels"]["cause"], verdict["labels"]["culprit"]) == ("process-stopped", "1"), verdict
        print(f"ok: {time.time() - stopped:.0f} s after the stop TrainingJobVerdict fires: {verdict['annotations']['summary']}")
        n_answers, empty = 0, []
        for board, query in queries():
            found = prometheus.ask("query", query=query)["result"]
            n_answers += 1
            if not found:
                empty.append(query)
                assert any(part in query for part in MAY_BE_EMPTY), f"{board}: nothing for {query}"
        print(f"ok: Prometheus answers all {n_answers} queries of the dashboards, {n_answers - len(empty)} of them with series")
        stalled = firing("TrainingJobStalled")
        print(f"ok: {time.time() - stopped:.0f} s after the stop TrainingJobStalled fires: {stalled['annotations']['summary']}")
        assert prometheus.alerts()["NodeCheckFailed"]["state"] == "pending", prometheus.alerts()
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert all(rule["health"] == "ok" for rule in rules), rules
        prometheus.wait("alerts at the Alertmanager", 20, lambda: {"TrainingJobStalled", "TrainingJobVerdict"} <= {name for name, _ in Alertmanager.got})
        os.kill(children[1].pid, signal.SIGCONT)
        prometheus.wait("end of the alerts", 40, lambda: not {"TrainingJobStalled", "TrainingJobVerdict"} & prometheus.alerts().keys())
        print(f"ok: a stand-in for the Alertmanager got both; they end after the rank continues; {len(rules)} rules are healthy")
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)


if sys.argv[1] == "rank":
    otlp_test.STEPS = 6000
    otlp_test.train(pathlib.Path(sys.argv[2]))
else:
    main(*sys.argv[1:])
