#!/usr/bin/env python3
"""A job of thousands of ranks on simulated agents and a real etcd; agents, analyser and etcd are killed during the watch.

    zoo/hub.py --agents target/debug/examples/agents --nodes 1280 --ranks 8

One process runs all agents, each with its own lease; two processes are candidates for analyser. A rank skips a collective
three times: in normal operation, after the analyser was killed, and after etcd was killed and restarted. An agent is killed,
the analyser is killed, etcd is killed and restarted on its data. Every step has a time limit; the first one that fails ends
the run with code 1. The last line is a JSON object with all measurements. Needs etcd (Debian: etcd-server).
"""

import argparse
import json
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


class Failed(Exception):
    pass


def free_port():
    # Below the ephemeral ports: a client that retries while nothing listens would eventually
    # get the server's own port, connect to itself, and keep the server from coming back.
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", random.randrange(11000, 32000)))
                return s.getsockname()[1]
            except OSError:
                pass


class Lines:
    """A process that prints JSON lines."""

    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.queue = queue.Queue()
        self.seen = []
        self.waited = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.queue.put(json.loads(line))
        self.queue.put(None)

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def take_in(self):
        while True:
            try:
                line = self.queue.get_nowait()
            except queue.Empty:
                return
            if line is not None:
                self.seen.append(line)

    def poll(self):
        """Printed lines that nobody has consumed yet."""
        self.take_in()
        new, self.waited = self.seen[self.waited:], len(self.seen)
        return new

    def find(self, having):
        """The next accepted line; later lines stay queued."""
        self.take_in()
        while self.waited < len(self.seen):
            self.waited += 1
            if having(self.seen[self.waited - 1]):
                return self.seen[self.waited - 1]
        return None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def wait(what, seconds, *sources, having):
    """The first line of any process that `having` accepts, and the time it took."""
    begun = time.time()
    while time.time() - begun < seconds:
        for source in sources:
            line = source.find(having)
            if line is not None:
                return line, time.time() - begun
            if source.process.poll() is not None:
                raise Failed(f"{what}: {source.process.args[:2]} has ended with {source.process.returncode}")
        time.sleep(0.02)
    last = [line for source in sources for line in source.seen[-3:]]
    raise Failed(f"{what}: not within {seconds} s; last said: {json.dumps(last)[:3000]}")


class Etcd:
    def __init__(self, folder):
        self.folder = folder
        self.client, self.peer = free_port(), free_port()
        self.process = None

    def start(self):
        client, peer = f"http://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
        self.process = subprocess.Popen(
            ["etcd", "--name", "zoo", "--logger", "zap", "--data-dir", f"{self.folder}/data",
             "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"zoo={peer}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(f"{self.folder}/log", "a"))
        begun = time.time()
        while time.time() - begun < 60:
            try:
                with urllib.request.urlopen(f"{client}/health", timeout=2) as answer:
                    if b"true" in answer.read():
                        return time.time() - begun
            except OSError:
                time.sleep(0.05)
        raise Failed("etcd does not start")

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def cpu_s(self):
        return cpu_s(self.process.pid)

    def state(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.client}/metrics", timeout=10) as answer:
            text = answer.read().decode()

        def metric(name):
            found = re.search(rf"^{name} (\S+)$", text, re.M)
            return float(found.group(1)) if found else None

        return {
            "rss_mib": round(metric("process_resident_memory_bytes") / 2**20),
            "db_mib": round(metric("etcd_mvcc_db_total_size_in_bytes") / 2**20, 1),
            "db_in_use_mib": round((metric("etcd_mvcc_db_total_size_in_use_in_bytes") or 0) / 2**20, 1),
            "revision": int(metric("etcd_debugging_mvcc_current_revision") or 0),
        }


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def delay_s(pid):
    """Time for which threads were runnable without a processor."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                total += int(f.read().split()[1])
        except OSError:
            pass
    return total / 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", required=True, help="the built example of crates/hub")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=8, help="of each node")
    parser.add_argument("--gap-ms", type=int, default=1000, help="between two digests of a node")
    parser.add_argument("--step-ms", type=int, default=1000, help="of the job")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--steady", type=float, default=10, help="seconds of peace that are measured")
    parser.add_argument("--outage", type=float, default=15, help="seconds without etcd: more than a lease lasts")
    parser.add_argument("--bound", type=float, default=5, help="seconds from the last digest needed to the verdict")
    args = parser.parse_args()
    out = {"nodes": args.nodes, "ranks": args.nodes * args.ranks, "gap_ms": args.gap_ms, "cpus": os.cpu_count()}
    out["etcd_version"] = subprocess.run(["etcd", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    folder = tempfile.mkdtemp(prefix="ringleader-hub-")
    etcd = Etcd(folder)
    started = []
    try:
        play(args, etcd, started, out)
        return 0
    except Failed as failed:
        print(f"FAILED {failed}", flush=True)
        for one in started:
            one.take_in()
            state = "lives" if one.process.poll() is None else f"ended with {one.process.returncode}"
            print(f"  {one.process.args[1:4]} {state}, said last:", *map(json.dumps, one.seen[-4:]), sep="\n    ")
        out["failed"] = str(failed)
        return 1
    finally:
        for one in started:
            one.process.poll() is None and one.kill()
        etcd.kill()
        subprocess.run(["rm", "-rf", folder], check=False)
        print(json.dumps(out), flush=True)


def note(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def play(args, etcd, started, out):
    etcd.start()
    hub = f"etcd://127.0.0.1:{etcd.client}/zoo?connections={args.connections}"
    # The job has been running for ten minutes when the watch begins.
    begin = int((time.time() - 600) * 1e9)
    agents = Lines([args.agents, "run", hub, "--nodes", str(args.nodes), "--ranks", str(args.ranks), "--gap-ms",
                    str(args.gap_ms), "--step-ms", str(args.step_ms), "--start", str(begin)])
    started.append(agents)
    first, second = (Lines([args.agents, "analyse", f"etcd://127.0.0.1:{etcd.client}/zoo", name]) for name in "ab")
    started += [first, second]
    elected, _ = wait("an analyser", 60, first, second, having=lambda line: line.get("what") == "elected")
    one, other = (first, second) if elected["analyser"] == "a" else (second, first)

    def is_whole(line, silent=0):
        return line.get("what") == "report" and line["nodes"] >= args.nodes and line["silent"] <= silent

    _, out["joined_s"] = wait("all nodes joined", 180, one, having=is_whole)
    note(f"all {args.nodes} nodes joined after {out['joined_s']:.1f} s")

    # Normal operation.
    cpu, since = etcd.cpu_s(), time.time()
    own, theirs = cpu_s(one.process.pid), cpu_s(agents.process.pid)
    parts = {"analyser": one.process.pid, "agents": agents.process.pid, "etcd": etcd.process.pid}
    delays = {name: delay_s(pid) for name, pid in parts.items()}
    one.poll(), agents.poll()
    reports, sent = [], []
    while time.time() - since < args.steady or not reports or not sent:
        reports += [line for line in one.poll() if line.get("what") == "report"]
        sent += [line for line in agents.poll() if line.get("agents") == "sent"]
        time.sleep(0.2)
    seconds = time.time() - since
    alarms = ("stall", "silent", "straggler")
    false_alarms = [line for line in one.seen if line.get("what") in alarms and line["at"] >= since]
    if false_alarms:
        raise Failed(f"in peace: {json.dumps(false_alarms[:3])[:2000]}")

    def mean(lines, key):
        return round(sum(line[key] for line in lines) / len(lines))

    out["peace"] = {
        "seconds": round(seconds), "sent_per_s": mean(sent, "per_s"), "sent_kib_per_s": mean(sent, "kib_per_s"),
        "taken_per_s": mean(reports, "digests_per_s"), "latency_ms_p50_p99_max": [
            max(line["latency_ms"][at] for line in reports) for at in range(3)],
        "look_ms": max(line["look_ms"] for line in reports), "look_cpu_ms": max(line["look_cpu_ms"] for line in reports),
        "take_cpu_us": mean(reports, "take_cpu_us"), "analyser_rss_mib": reports[-1]["rss_mib"],
        "analyser_peak_mib": reports[-1]["peak_mib"],
        "analyser_cpu": round((cpu_s(one.process.pid) - own) / seconds, 2),
        "agents_cpu": round((cpu_s(agents.process.pid) - theirs) / seconds, 2),
        "etcd_cpu": round((etcd.cpu_s() - cpu) / seconds, 2), "etcd": etcd.state(), "failed": sum(l["failed"] for l in sent),
        # Above a few per cent the machine was busy with other work.
        "waited_for_cpu": {name: round((delay_s(pid) - delays[name]) / seconds, 2) for name, pid in parts.items()},
    }
    note(f"peace: {json.dumps(out['peace'])}")

    out["faults"] = []

    def fault(rank, by, when):
        agents.poll(), by.poll()
        agents.say(f"fault {rank}")
        planted, _ = wait("the fault planted", 30, agents, having=lambda line: line.get("agents") == "fault")
        stall, _ = wait(f"the verdict {when}", 60, by, having=lambda line: line.get("what") == "stall")
        recorded, _ = wait("the incident", 10, by, having=lambda line: line.get("what") == "recorded")
        # The last digest that the verdict needs says that nothing has moved for the usual time.
        found = {
            "when": when, "rank": rank, "suspects": stall["suspects"],
            "after_break_s": round(stall["at"] - planted["stuck_at"], 2), "expected_s": stall["expected_s"],
            "after_patience_s": round(stall["at"] - planted["stuck_at"] - stall["expected_s"], 2),
            "text": stall["text"][:160], "incident": recorded["incident"], "request": recorded["request"],
        }
        out["faults"].append(found)
        note(f"{when}: {json.dumps(found)}")
        if stall["suspects"] != [rank]:
            raise Failed(f"{when}: rank {rank} was planted, {stall['suspects']} is named")
        if found["after_patience_s"] > args.bound:
            raise Failed(f"{when}: {found['after_patience_s']} s after the usual time had passed")
        if recorded["error"]:
            raise Failed(f"{when}: {recorded['error']}")
        agents.say("heal")
        wait("the recovery", 60, by, having=lambda line: line.get("what") == "recovered")

    ranks = args.nodes * args.ranks
    fault(ranks // 3 + 1, one, "in peace")

    # An agent dies.
    dead = args.nodes // 2
    agents.say(f"kill {dead}")
    wait("the agent killed", 30, agents, having=lambda line: line.get("agents") == "kill")
    _, out["silent_s"] = wait("its silence", 30, one,
                              having=lambda line: line.get("what") == "silent" and line["node"] == f"n{dead:04}")
    note(f"a killed agent is silent after {out['silent_s']:.1f} s")

    # The analyser dies.
    wait("peace again", 60, one, having=lambda line: line.get("what") == "report")
    one.kill()
    _, out["failover_s"] = wait("another analyser", 60, other, having=lambda line: line.get("what") == "elected")
    _, whole = wait("all nodes joined again", 90, other,
                    having=lambda line: line.get("what") == "report" and line["nodes"] >= args.nodes - 1 and not line["silent"])
    out["failover_joined_s"] = out["failover_s"] + whole
    note(f"another analyser after {out['failover_s']:.1f} s, all joined after {out['failover_joined_s']:.1f} s")
    fault(ranks // 5, other, "after the analyser was killed")

    # etcd dies.
    etcd.kill()
    killed = time.time()
    wait("the loss told", 30, other, having=lambda line: line.get("what") == "away")
    time.sleep(max(0.0, args.outage - (time.time() - killed)))
    out["etcd_restart_s"] = etcd.start()
    back = time.time()
    wait("the hub's return", 60, other, having=lambda line: line.get("what") == "back")
    agents.poll()
    wait("all agents up", 60, agents,
         having=lambda line: line.get("agents") == "sent" and line["up"] == line["of"] and line["per_s"] > 0)
    out["agents_back_s"] = time.time() - back
    wait("all nodes heard", 60, other,
         having=lambda line: line.get("what") == "report" and line["silent"] == 0 and line["nodes"] >= args.nodes - 1)
    out["etcd_back_s"] = time.time() - back
    out["leases_lost"] = sum(line["leases_lost"] for line in agents.seen if line.get("agents") == "sent")
    note(f"etcd back after {time.time() - killed:.0f} s, all joined {out['etcd_back_s']:.1f} s later, "
         f"{out['leases_lost']} leases lost")
    if any(line.get("what") == "silent" for line in other.seen[-200:] if line["at"] > killed):
        raise Failed("etcd's silence was taken for that of agents")
    time.sleep(5)
    other.poll()
    fault(ranks - 2, other, "after etcd was killed")
    out["etcd_at_end"] = etcd.state()
    note(f"etcd at the end: {json.dumps(out['etcd_at_end'])}")
    agents.say("quit")


sys.exit(main())
