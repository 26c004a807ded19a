#!/usr/bin/env python3
"""Four nodes (network namespaces), a real etcd with three members, and on each node `ringleader run` with a real torchrun
(PyTorch, gloo on CPU, or NCCL with a GPU a node), whose agents meet over the network.

    zoo/run/torchrun_nodes.py --ringleader PROGRAM --python PYTHON_WITH_TORCH [--only worker,agent,...] [--out FILE]

worker       four nodes; the rank of one is killed
agent        four nodes; torchrun itself is killed on one: its rank is left behind
supervisors  four nodes; all supervisors are killed, then a rank
link         three nodes and a spare; one link is cut for good: the spare replaces the node
shrink       four nodes, no spare; one link is cut for good: torchrun's range is used, three nodes go on
lost         the same, but the node loses its power: its link is cut, and all of its processes are killed
lost-spare   three nodes and a spare; one node loses its power

With --hub dir the supervisors meet in a folder, which a cut does not take away: only a node without power is lost then (`lost`,
`lost-spare`). With --network switch, the nodes are those of zoo/netns.py; `auto` takes it where `ip` cannot create a veth and a bridge.

With --alone, `worker`, `agent` and `shrink` also run under torchrun's own restart (`--nnodes 3:4 --max-restarts 3`, a timeout of 30 s
in the program, the newest checkpoint unchecked), with the same fault at the same step, for at most --limit seconds.

Checked: the job reaches its last step with the loss of an uninterrupted run (not in `shrink` and `lost`, where the sum over ranks has fewer
terms), no step is repeated beyond the checkpoint, one attempt at a time makes progress, each node starts an attempt once, and no
process is left. Needs root, iproute2 (or /dev/net/tun), etcd (or --hub dir) and PyTorch; without them it says so and exits with 69.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import nodes

sys.path.insert(0, os.path.join(nodes.HERE, ".."))
from netns import possible  # noqa: E402

PORT = 29400


class World(nodes.World):
    """Nodes that run torchrun. `most`: nodes of the job; further ones are spares."""

    most = 4
    # Time to end after SIGTERM, seconds: two minutes for a node without the others.
    patience = 150

    def build(self):
        is_switch = self.args.network == "switch"
        self.build_switch() if is_switch else super().build()
        # torchrun's store is on the node whose host name the endpoint has: each node has a name, and knows all.
        hosts = "127.0.0.1 localhost\n" + "".join(f"{self.address(n)} n{n}\n" for n in range(nodes.N))
        with open(f"{self.folder}/hosts", "w") as file:
            file.write(hosts)
        for n in range(0 if is_switch else nodes.N):
            os.makedirs(f"/etc/netns/{self.space(n)}", exist_ok=True)
            with open(f"/etc/netns/{self.space(n)}/hosts", "w") as file:
                file.write(hosts)

    def close(self):
        for child in self.nodes.values():
            if child.poll() is None:
                child.terminate()
        for child in self.nodes.values():
            try:
                # torchrun does not see the signal while it waits for a store that is gone.
                child.wait(self.patience)
            except subprocess.TimeoutExpired:
                self.log.append(f"{child.pid} does not end")
        super().close()
        for n in range(nodes.N):
            shutil.rmtree(f"/etc/netns/{self.space(n)}", ignore_errors=True)

    def start(self, n):
        hub = "etcd://" + ",".join(f"10.79.0.1:{2380 + m}" for m in range(3)) + f"/{os.path.basename(self.folder)}"
        if self.args.hub == "dir":
            os.makedirs(f"{self.folder}/hub", exist_ok=True)
            hub = f"dir:{self.folder}/hub"
        words = [self.args.ringleader, "run", "--hub", hub, "--job", "j", "--node", f"n{n}",
                 "--lost-after", str(self.args.lost_after), "--join-within", "60", "--silence-floor", str(self.args.silence), "--end-grace", "3",
                 "--state", f"{self.folder}/state{n}", "--policy", f"{self.folder}/policy.toml", "--checkpoints",
                 f"{self.folder}/ckpt", "--no-history", "--no-ras", "--"]
        words += torchrun(self.args, ["--nnodes", f"3:{self.most}", "--rdzv-backend", "c10d", "--rdzv-id", "j", "--rdzv-endpoint",
                                      f"n0:{PORT}"])
        words += job(self.args, self.folder, "{checkpoint}")
        self.spawn(n, words)

    def spawn(self, n, words):
        said = open(f"{self.folder}/said{n}", "a")
        mount = f"mount --bind {self.folder}/hosts /etc/hosts && " if self.switch else ""
        named = ["unshare", "--uts", "--mount", "sh", "-c", f'{mount}echo n{n} > /proc/sys/kernel/hostname && exec "$@"', "-"]
        env = {**os.environ, "NODE": f"n{n}", "GLOO_SOCKET_IFNAME": "eth0"}
        if self.args.backend == "nccl":
            env.update(NCCL_SOCKET_IFNAME="eth0", NCCL_IB_DISABLE="1", NCCL_HOSTID=f"n{n}", CUDA_VISIBLE_DEVICES=str(n % self.args.gpus))
        self.nodes[n] = subprocess.Popen([*self.enter(n), *named, *words], stdout=said, stderr=said, env=env)

    def workers(self, n):
        """Processes of ranks below the node's launcher."""
        launched = self.held(n).get("launched")
        return subprocess.run(["pgrep", "-P", str(launched["pid"]), "-f", "train.py"], capture_output=True, text=True).stdout.split()

    def left(self):
        """Processes that still train: none must be left at the end."""
        return subprocess.run(["pgrep", "-f", f"train.py.*{self.folder}"], capture_output=True, text=True).stdout.split()


class Bare(World):
    """Nodes that run torchrun alone."""

    patience = 40

    def start(self, n):
        words = torchrun(self.args, ["--nnodes", f"3:{self.most}", "--rdzv-backend", "c10d", "--rdzv-id", "j", "--rdzv-endpoint",
                                     f"n0:{PORT}", "--max-restarts", "3"])
        words += job(self.args, self.folder, "auto") + ["--timeout", "30"]
        self.spawn(n, words)

    def held(self, n):
        return {"launched": {"pid": self.nodes[n].pid}}


def torchrun(args, more):
    return [args.python, "-m", "torch.distributed.run", "--nproc-per-node", "1", *more]


def job(args, folder, checkpoint):
    words = [f"{nodes.HERE}/train.py", "--dir", folder, "--steps", str(args.steps), "--save-every", "10", "--step-ms", "100",
             "--backend", args.backend]
    return words + (["--resume", checkpoint] if checkpoint else [])


def whole(args, n):
    """What an uninterrupted run of so many ranks ends with."""
    folder = tempfile.mkdtemp(prefix="whole-")
    words = [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), *job(args, folder, None)]
    subprocess.run(words, check=True, capture_output=True)
    ended = json.load(open(f"{folder}/final.json"))
    shutil.rmtree(folder)
    return ended


def worker(world):
    os.kill(int(world.workers(1)[0]), signal.SIGKILL)


def agent(world):
    os.kill(world.held(1)["launched"]["pid"], signal.SIGKILL)


def supervisors(world):
    for n in range(nodes.N):
        os.kill(world.held(n)["supervisor"], signal.SIGKILL)
        time.sleep(1)
    time.sleep(5)
    os.kill(int(world.workers(2)[0]), signal.SIGKILL)


def cut(world):
    world.cut(1)


def power(world):
    """Nothing of the node is heard again: the link first, so that no connection is closed in order."""
    world.cut(1)
    while pids := world.processes(1):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


# Scenes whose job ends with fewer ranks: its loss is another one.
FEWER = ("shrink", "lost")
# The fault, the nodes of the job, and those of the second attempt.
SCENES = {"worker": (worker, 4, [0, 1, 2, 3]), "agent": (agent, 4, [0, 1, 2, 3]), "supervisors": (supervisors, 4, [0, 1, 2, 3]),
          "link": (cut, 3, [0, 2, 3]), "shrink": (cut, 4, [0, 2, 3]),
          "lost": (power, 4, [0, 2, 3]), "lost-spare": (power, 3, [0, 2, 3])}


def play(args, name, wanted):
    fault, most, second = SCENES[name]
    folder = tempfile.mkdtemp(prefix=f"torchrun-{name}-")
    world = World(args, folder)
    world.most = most
    row = {"scene": name, "folder": folder}
    with open(f"{folder}/policy.toml", "w") as file:
        file.write(nodes.POLICY.replace("{folder}", folder))
    try:
        world.build()
        if args.hub == "etcd":
            for n in range(3):
                world.etcd(n)
            world.wait("etcd", lambda: world.ctl("endpoint", "health").returncode == 0, 60)
        for n in range(nodes.N):
            if n == most:
                # The last node must be the spare.
                time.sleep(4)
            world.start(n)
        row["started"] = world.wait("the first steps", lambda: world.step() >= 25, args.limit)
        struck, at = time.time(), world.step()
        fault(world)
        row["ended"] = world.wait("the end", lambda: os.path.exists(f"{folder}/final.json"), args.limit)
        alive = [n for n in range(nodes.N) if n != 1 or fault not in (cut, power)]
        row["codes"] = [world.nodes[n].wait(60) for n in alive]
        judge(world, row, struck, second)
        ended = json.load(open(f"{folder}/final.json"))
        row["same_loss"] = abs(ended["digest"] - wanted[most]["digest"]) < 1e-4 if name not in FEWER else None
        row["at_step"] = at
        row["is_well"] = bool(row["started"] and row["ended"] and row["one_at_a_time"] and row["started_once"] and row["as_wanted"]
                              and row["same_loss"] is not False and row["repeated_beyond"] == 0 and not any(row["codes"]))
    finally:
        world.close()
        time.sleep(1)
        row["left"] = world.left()
    if world.log:
        row["log"] = world.log
    row["is_well"] = row.get("is_well", False) and not row["left"]
    if row["is_well"] and not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def alone(args, name):
    """The same fault under torchrun alone."""
    folder = tempfile.mkdtemp(prefix=f"torchrun-alone-{name}-")
    world = Bare(args, folder)
    row = {"scene": name, "torchrun_alone": True}
    try:
        world.build()
        for n in range(nodes.N):
            world.start(n)
        row["started"] = world.wait("the first steps", lambda: world.step() >= 25, args.limit)
        struck, last = time.time(), world.step()
        SCENES[name][0](world)
        row["ended"] = world.wait("the end", lambda: os.path.exists(f"{folder}/final.json"), args.limit)
        steps = [json.loads(line) for line in open(f"{folder}/steps.jsonl")]
        # Restarted at the checkpoint: a step that was made before.
        later = [step["at"] for step in steps if step["at"] > struck + 1 and step["step"] <= last]
        row["gap_s"] = round(min(later) - struck, 1) if later else None
    finally:
        world.close()
        for pid in world.left():
            os.kill(int(pid), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    return row


def judge(world, row, struck, second):
    steps = [json.loads(line) for line in open(f"{world.folder}/steps.jsonl")]
    generations = [step["generation"] for step in steps]
    row["generations"] = sorted(set(generations))
    row["one_at_a_time"] = generations == sorted(generations)
    starts = {}
    for n in range(nodes.N):
        for line in open(f"{world.state(n)}/journal.jsonl"):
            record = json.loads(line)
            if record["to"] == "launching":
                starts.setdefault(record["generation"], []).append(n)
    row["run_by"] = starts
    row["started_once"] = all(len(set(named)) == len(named) for named in starts.values())
    row["as_wanted"] = row["generations"] == [1, 2] and starts.get(2) == second
    last = max(step["step"] for step in steps if step["generation"] == 1)
    first = min((step["step"] for step in steps if step["generation"] == 2), default=0)
    row["steps_lost"] = last - first + 1
    # Checkpoints are saved every 10 steps; one that was being written when the fault struck does not count.
    row["repeated_beyond"] = max(0, row["steps_lost"] - 11)
    later = [step["at"] for step in steps if step["generation"] == 2]
    row["gap_s"] = round(min(later) - struck, 1) if later else None


def has_veth():
    """Whether `ip` can create what the nodes need."""
    name = f"rlp{os.getpid() % 10000}"
    try:
        nodes.sh("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
        nodes.sh("ip", "link", "del", f"{name}a")
        nodes.sh("ip", "link", "add", name, "type", "bridge")
        nodes.sh("ip", "link", "del", name)
        nodes.sh("ip", "netns", "list")
        return True
    except (OSError, subprocess.CalledProcessError) as error:
        print("no veth or bridge here, so zoo/netns.py:", getattr(error, "stderr", None) or error, file=sys.stderr)
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default=",".join(SCENES))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--out", default=None)
    parser.add_argument("--silence", type=float, default=20)
    parser.add_argument("--lost-after", type=float, default=15)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--gpus", type=int, default=4, help="with nccl: node n uses number n modulo this")
    parser.add_argument("--hub", choices=["etcd", "dir"], default="etcd")
    parser.add_argument("--network", choices=["veth", "switch", "auto"], default="veth")
    args = parser.parse_args()
    args.ringleader = os.path.abspath(args.ringleader)
    if args.network == "auto":
        args.network = "veth" if has_veth() else "switch"
    if args.hub == "etcd" and args.network == "switch":
        parser.error("etcd needs --network veth; without it take --hub dir")
    missing = [] if args.network == "veth" or not possible() else [possible()]
    needed = ["unshare", *(["ip"] if args.network == "veth" else ["nsenter"]), *(["etcd", "etcdctl"] if args.hub == "etcd" else [])]
    missing += [program for program in needed if not shutil.which(program)]
    if subprocess.run([args.python, "-c", "import torch.distributed"], capture_output=True).returncode:
        missing.append("PyTorch")
    if missing or os.geteuid() != 0:
        print(f"NOT TESTED: needs root and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
        sys.exit(69)
    names = args.only.split(",")
    wanted = {n: whole(args, n) for n in {SCENES[name][1] for name in names if name not in FEWER}}
    rows = []
    for name in names:
        rows.append(play(args, name, wanted))
        print(json.dumps(rows[-1]), flush=True)
    bares = []
    for name in names if args.alone else []:
        if SCENES[name][0] in (worker, agent) or name in FEWER:
            bares.append(alone(args, name))
            print(json.dumps(bares[-1]), flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(rows + bares, file, indent=1)
    sys.exit(0 if all(row["is_well"] for row in rows) else 1)


if __name__ == "__main__":
    main()
