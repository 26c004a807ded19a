#!/usr/bin/env python3
"""Four nodes (network namespaces) and a real etcd with three members: `ringleader run` on each node under planted failures.

    zoo/run/nodes.py --ringleader PROGRAM [--only link,rank,apart,supervisor,leader,full,back,mended,stopped,alone] [--out FILE]

Needs root, iproute2 and etcd; without them it says so and exits with 69. Checked for each: the job completes all steps, the
sum is right (nothing was lost or counted twice), no node starts a generation twice, no two generations make progress at
once, the spare replaces a lost node, and a node that returns joins the next attempt.
"""

import argparse
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
N = 4
POLICY = """version = 1
[budget]
transient = { max = 9, per = "1h" }
unknown = { max = 9, per = "1h" }
node = { max = 9, per = "1h" }
[backoff]
first = "1s"
cap = "2s"
[exclude]
max_share = 0.5
back_after = "3s"
[stall]
grace = "2s"
[preflight]
check = false
command = "test ! -e {folder}/bad-$NODE"
"""
VERDICT = {"cause": "nvlink-error", "class": "node", "confidence": "high", "summary": "planted: the NVLinks of n1",
           "culprits": [{"host": "n1"}]}


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class World:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.tag = f"rlr{os.getpid() % 10000}"
        self.etcds, self.nodes, self.spaces = {}, {}, []
        # State folders that no other node can read; open descriptors keep them readable for us after the node's processes end.
        self.is_apart, self.private = False, {}
        self.steps = args.steps
        # Only rank 0 prints steps.
        self.is_quiet = False
        # A network of zoo/netns.py in place of veth: its process, and the nodes' namespaces.
        self.switch, self.files = None, []
        self.log = []

    def space(self, name):
        return f"{self.tag}{name}"

    def build(self):
        hub = self.space("h")
        sh("ip", "netns", "add", hub)
        self.spaces.append(hub)
        self.inside("h", "ip", "link", "set", "lo", "up")
        self.inside("h", "ip", "link", "add", "br0", "type", "bridge")
        self.inside("h", "ip", "addr", "add", "10.79.0.1/24", "dev", "br0")
        self.inside("h", "ip", "link", "set", "br0", "up")
        for n in range(N):
            name = self.space(n)
            sh("ip", "netns", "add", name)
            self.spaces.append(name)
            sh("ip", "link", "add", f"{self.tag}v{n}", "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", name)
            self.inside("h", "ip", "link", "set", f"{self.tag}v{n}", "master", "br0", "up")
            self.inside(n, "ip", "link", "set", "lo", "up")
            self.inside(n, "ip", "addr", "add", f"10.79.0.{10 + n}/24", "dev", "eth0")
            self.inside(n, "ip", "link", "set", "eth0", "up")

    def build_switch(self):
        """The same with TAP interfaces and a switch in user space, where a kernel has no veth or bridge, or iproute2 is missing."""
        netns = os.path.join(HERE, "..", "netns.py")
        self.switch = subprocess.Popen([sys.executable, netns, str(N), f"{self.folder}/switch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True)
        self.files = json.loads(self.switch.stdout.readline())["nodes"]

    def address(self, n):
        return f"10.77.0.{10 + n}" if self.switch else f"10.79.0.{10 + n}"

    def net(self, name):
        """The file of a node's network namespace."""
        return self.files[name] if self.switch else f"/var/run/netns/{self.space(name)}"

    def enter(self, name):
        """A command before others that moves them into a node's network."""
        return ["nsenter", f"--net={self.net(name)}"] if self.switch else ["ip", "netns", "exec", self.space(name)]

    def inside(self, name, *words, **more):
        return subprocess.run([*self.enter(name), *words], check=True, capture_output=True, **more)

    def cut(self, n):
        """Cuts a node's link for good."""
        if not self.switch:
            self.inside(n, "ip", "link", "set", "eth0", "down")
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
            control.sendto(json.dumps({"node": n, "lose": 1.0}).encode(), f"{self.folder}/switch")

    def processes(self, n):
        """Everything that runs in a node's network."""
        node, found = os.stat(self.net(n)).st_ino, []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found += [int(pid)] if os.stat(f"/proc/{pid}/ns/net").st_ino == node else []
            except OSError:
                pass  # It has ended.
        return found

    def etcd(self, n):
        cluster = ",".join(f"e{m}=http://10.79.0.1:{2480 + m}" for m in range(3))
        words = ["etcd", "--name", f"e{n}", "--data-dir", f"{self.folder}/etcd{n}", "--listen-client-urls",
                 f"http://10.79.0.1:{2380 + n}", "--advertise-client-urls", f"http://10.79.0.1:{2380 + n}",
                 "--listen-peer-urls", f"http://10.79.0.1:{2480 + n}", "--initial-advertise-peer-urls",
                 f"http://10.79.0.1:{2480 + n}", "--initial-cluster", cluster, "--quota-backend-bytes", "16777216"]
        log = open(f"{self.folder}/etcd{n}.log", "a")
        self.etcds[n] = subprocess.Popen(["ip", "netns", "exec", self.space("h"), *words], stdout=log, stderr=log)

    def ctl(self, *words, said=None):
        ends = ",".join(f"http://10.79.0.1:{2380 + n}" for n in range(3))
        return subprocess.run(["ip", "netns", "exec", self.space("h"), "etcdctl", "--endpoints", ends, *words],
                              capture_output=True, text=True, input=said, env={**os.environ, "ETCDCTL_API": "3"})

    def leader(self):
        for line in self.ctl("endpoint", "status", "-w", "simple").stdout.splitlines():
            parts = [part.strip() for part in line.split(",")]
            if len(parts) > 4 and parts[4] == "true":
                return int(parts[0].rsplit(":", 1)[1]) - 2380
        return 0

    def start(self, n):
        hub = "etcd://" + ",".join(f"10.79.0.1:{2380 + m}" for m in range(3)) + f"/{os.path.basename(self.folder)}"
        words = [self.args.ringleader, "run", "--hub", hub, "--job", "j", "--node", f"n{n}", "--address", f"10.79.0.{10 + n}",
                 "--nodes", "3", "--min-nodes", "2", "--lost-after", "15", "--join-within", "20", "--silence-floor", "6",
                 "--end-grace", "2", "--state", f"{self.folder}/state{n}", "--policy", f"{self.folder}/policy.toml",
                 "--checkpoints", f"{self.folder}/ckpt", "--no-history", "--no-ras", "--unstable-verdict",
                 f"{self.folder}/verdict.json", "--",
                 sys.executable, f"{HERE}/small.py", "--rank", "{node_rank}", "--world", "{nnodes}", "--master",
                 "{master_addr}:{master_port}", "--dir", self.folder, "--steps", str(self.steps), "--hurry",
                 f"{self.folder}/hurry", "--resume", "{checkpoint}"] + (["--quiet"] if self.is_quiet else [])
        said = open(f"{self.folder}/said{n}", "a")
        if self.is_apart:
            os.makedirs(f"{self.folder}/state{n}", exist_ok=True)
            mount = f'mount -t tmpfs none {self.folder}/state{n} && exec "$@"'
            words = ["sh", "-c", mount, "-", *words]
        self.nodes[n] = subprocess.Popen(["ip", "netns", "exec", self.space(n), *words], stdout=said, stderr=said,
                                         env={**os.environ, "NODE": f"n{n}"})

    def state(self, n):
        if not self.is_apart:
            return f"{self.folder}/state{n}"
        if n not in self.private:
            self.private[n] = os.open(f"/proc/{self.nodes[n].pid}/root{self.folder}/state{n}", os.O_DIRECTORY)
        return f"/proc/self/fd/{self.private[n]}"

    def held(self, n):
        try:
            return json.load(open(f"{self.state(n)}/holder.json"))
        except (OSError, ValueError):
            return {}

    def last(self):
        try:
            return json.loads(open(f"{self.folder}/steps.jsonl").read().splitlines()[-1])
        except (OSError, IndexError, ValueError):
            return {}

    def step(self):
        return self.last().get("step", 0)

    def runs(self, generation):
        return self.wait(f"attempt {generation}", lambda: self.last().get("generation", 0) >= generation, self.args.limit)

    def joins(self, n, generation):
        """Whether the node has passed its preflight check for this attempt."""
        words = f"this node could join attempt {generation}"
        return self.wait(words, lambda: words in open(f"{self.folder}/said{n}").read(), self.args.limit)

    def said(self, n, words):
        return self.wait(words, lambda: words in open(f"{self.folder}/said{n}").read(), self.args.limit)

    def touch(self, name, is_there=True):
        path = f"{self.folder}/{name}"
        open(path, "w").close() if is_there else os.remove(path)

    def wait(self, what, test, limit):
        until = time.time() + limit
        while time.time() < until:
            if test():
                return True
            time.sleep(0.2)
        self.log.append(f"gave up waiting for {what}")
        return False

    def close(self):
        for child in list(self.nodes.values()) + list(self.etcds.values()):
            if child.poll() is None:
                child.terminate()
        for child in list(self.nodes.values()) + list(self.etcds.values()):
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
        for name in self.spaces:
            sh("ip", "netns", "del", name, check=False)
        if self.switch:
            self.switch.stdin.close()
            self.switch.wait(10)


def kill_rank(world, n):
    """The rank of this node, or of another node if this one is the spare."""
    launched = (world.held(at).get("launched") for at in (n, 3, 2, 1))
    os.kill(next(launcher["pid"] for launcher in launched if launcher), signal.SIGKILL)


def link(world):
    """One node's link is cut for good."""
    world.cut(1)


def rank(world):
    kill_rank(world, 1)


def apart(world):
    """Like `rank`, but no node can read another's files: the evidence goes through the hub."""
    for n in range(N):
        world.state(n)
    kill_rank(world, 1)


def supervisor(world):
    """All supervisors are killed, one after the other; then a rank."""
    for n in range(3):
        os.kill(world.held(n)["supervisor"], signal.SIGKILL)
        time.sleep(1)
    time.sleep(4)
    kill_rank(world, 2)


def leader(world):
    """etcd's leader is killed together with a rank, and returns."""
    at = world.leader()
    pids = subprocess.run(["pgrep", "-P", str(world.etcds[at].pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(pids[0]) if pids else world.etcds[at].pid, signal.SIGKILL)
    kill_rank(world, 1)
    time.sleep(6)
    world.etcd(at)


def full(world):
    """etcd is full while a rank is killed; then it gets room again."""
    for n in range(40):
        if "space" in world.ctl("put", f"/fill/{n}", said="x" * 900_000).stderr:
            break
    kill_rank(world, 1)
    time.sleep(12)
    world.ctl("del", "/fill", "--prefix")
    status = json.loads(world.ctl("endpoint", "status", "-w", "json").stdout)
    world.ctl("compact", str(status[0]["Status"]["header"]["revision"]))
    world.ctl("defrag")
    world.ctl("alarm", "disarm")


def back(world):
    """One node's link is cut and restored; then another link is cut for good: the first node rejoins."""
    world.inside(1, "ip", "link", "set", "eth0", "down")
    world.runs(2)
    world.inside(1, "ip", "link", "set", "eth0", "up")
    world.joins(1, 3)
    world.inside(2, "ip", "link", "set", "eth0", "down")
    world.runs(3)


def mended(world):
    """A bad node is excluded and fails its preflight check; it is repaired while the job runs. When another node fails the
    check before the next attempt, the first node rejoins."""
    world.touch("bad-n1")
    json.dump(VERDICT, open(f"{world.folder}/verdict.json", "w"))
    kill_rank(world, 1)
    world.runs(2)
    world.touch("bad-n1", False)
    world.joins(1, 3)
    time.sleep(3)
    world.touch("bad-n2")
    kill_rank(world, 0)
    world.runs(3)


def stopped(world):
    """The supervisor of the only node that prints steps is stopped for longer than --lost-after: the job goes on."""
    pid = world.held(0)["supervisor"]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(40)
    os.kill(pid, signal.SIGCONT)
    time.sleep(4)


def alone(world):
    """etcd is unreachable for the only node that prints steps, and for no other: the job goes on."""
    world.inside(0, "ip", "route", "add", "blackhole", "10.79.0.1/32")
    time.sleep(40)
    world.inside(0, "ip", "route", "del", "blackhole", "10.79.0.1/32")
    time.sleep(4)


SCENES = {"rank": rank, "apart": apart, "supervisor": supervisor, "leader": leader, "full": full, "link": link, "back": back,
          "mended": mended, "stopped": stopped, "alone": alone}
# The nodes of each attempt, by generation, if known.
# A job that goes on has one attempt.
HARMLESS = {"stopped", "alone"}
RUN_BY = {"link": {2: [0, 2, 3]}, "back": {2: [0, 2, 3], 3: [0, 1, 3]}, "mended": {2: [0, 2, 3], 3: [0, 1, 3]}}
# Nodes that are unreachable at the end.
CUT = {"link": [1], "back": [2]}


def play(args, name):
    folder = tempfile.mkdtemp(prefix=f"nodes-{name}-")
    world = World(args, folder)
    world.is_apart = name == "apart"
    world.is_quiet = name in HARMLESS
    row = {"scene": name, "folder": folder}
    with open(f"{folder}/policy.toml", "w") as file:
        file.write(POLICY.replace("{folder}", folder))
    try:
        world.build()
        for n in range(3):
            world.etcd(n)
        world.wait("etcd", lambda: world.ctl("endpoint", "health").returncode == 0, 60)
        for n in range(N):
            # The last node must be the spare.
            if n == N - 1:
                time.sleep(4)
            world.start(n)
        row["started"] = world.wait("the first steps", lambda: world.step() >= 15, 120)
        struck = time.time()
        SCENES[name](world)
        # The job runs until the last fault, however long that takes on this machine.
        world.touch("hurry")
        row["ended"] = world.wait("the end", lambda: os.path.exists(f"{folder}/final.json"), args.limit)
        alive = [n for n in range(N) if n not in CUT.get(name, [])]
        row["codes"] = []
        for n in alive:
            try:
                row["codes"].append(world.nodes[n].wait(60))
            except subprocess.TimeoutExpired:
                row["codes"].append(None)
        judge(world, row, struck, args)
    finally:
        world.close()
    if world.log:
        row["log"] = world.log
    if row.get("is_well") and not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def judge(world, row, struck, args):
    folder = world.folder
    steps = [json.loads(line) for line in open(f"{folder}/steps.jsonl")]
    generations = [s["generation"] for s in steps]
    row["generations"] = sorted(set(generations))
    # Steps of generations never alternate: one attempt at a time makes progress.
    row["one_at_a_time"] = generations == sorted(generations)
    starts = {}
    for n in range(N):
        path = f"{world.state(n)}/journal.jsonl"
        for line in open(path) if os.path.exists(path) else []:
            record = json.loads(line)
            if record["to"] == "launching":
                key = (record["node"], record["generation"])
                starts[key] = starts.get(key, 0) + 1
    row["started_once"] = all(n == 1 for n in starts.values())
    by = {}
    for node, generation in sorted(starts):
        by.setdefault(generation, []).append(int(node[1:]))
    row["run_by"] = by
    wanted = RUN_BY.get(row["scene"], {})
    row["as_wanted"] = all(by.get(generation) == nodes for generation, nodes in wanted.items())
    if row["scene"] in HARMLESS:
        row["as_wanted"] = row["generations"] == [1] and list(by) == [1]
    final = json.load(open(f"{folder}/final.json")) if os.path.exists(f"{folder}/final.json") else {}
    row["right_sum"] = final.get("total") == world.steps * (world.steps + 1) // 2
    later = [s["at"] for s in steps if s["at"] > struck and s["generation"] > min(generations)]
    row["gap_s"] = round(later[0] - struck, 1) if later else None
    if world.is_apart:
        row["fetched"] = sum(len(glob.glob(f"{world.state(n)}/attempts/1/of-*.tar.zst")) for n in range(N))
    row["is_well"] = bool(row["started"] and row.get("fetched", 2) == 2 and row["ended"] and row["one_at_a_time"] and row["started_once"]
                          and row["right_sum"] and row["as_wanted"] and all(code == 0 for code in row["codes"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--only", default=",".join(SCENES))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    args.ringleader = os.path.abspath(args.ringleader)
    missing = [program for program in ("ip", "etcd", "etcdctl") if not shutil.which(program)]
    if missing or os.geteuid() != 0:
        print(f"NOT TESTED: needs root and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
        sys.exit(69)
    rows = []
    for name in args.only.split(","):
        rows.append(play(args, name))
        print(json.dumps(rows[-1]), flush=True)
    if args.out:
        json.dump(rows, open(args.out, "w"), indent=1)
    sys.exit(0 if all(row["is_well"] for row in rows) else 1)


if __name__ == "__main__":
    main()
