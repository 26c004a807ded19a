#!/usr/bin/env python3
"""Tests the files of `ringleader run --print-scripts` on a real Slurm on network namespaces (zoo/slurm.sh).

    zoo/run/slurm.py --ringleader PROGRAM [--only spare,requeue,cancel,fail] [--out FILE]

Needs root and Debian's slurmctld, slurmd, slurm-client and munge; without them it says so and exits with 69. Four nodes; the job is
small.py on three. A fault of node n2 is planted as a verdict after a rank of it was killed:

    spare    four nodes are allocated: scontrol drains n2, the spare replaces it, the job succeeds within the same allocation
    requeue  three nodes are allocated and all are needed: the job is requeued once without n2, and succeeds on the others
    cancel   scancel: the job is asked to end, nothing is restarted
    fail     the program fails the same way each time: Slurm sees the launcher's exit code
"""

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
POLICY = """version = 1
[budget]
program = {{ same_place = 2 }}
unknown = {{ max = 1, per = "1h" }}
[backoff]
first = "1s"
cap = "2s"
[exclude]
max_share = 0.5
mode = "act"
requeue = {requeue}
[preflight]
check = false
"""
VERDICT = {"cause": "gpu-fallen-off-bus", "class": "node", "confidence": "high", "summary": "planted: the GPU of n2 is gone",
           "culprits": [{"host": "n2"}]}


class Cluster:
    def __init__(self, args):
        self.args = args
        self.folder = tempfile.mkdtemp(prefix="run-slurm-")
        os.chmod(self.folder, 0o755)
        self.tool = os.path.join(HERE, "..", "slurm.sh")

    def start(self):
        done = subprocess.run([self.tool, "start", f"{self.folder}/c", "4"], capture_output=True, text=True)
        if done.returncode == 69:
            print(f"NOT TESTED: {done.stderr.strip()}", file=sys.stderr)
            sys.exit(69)
        if done.returncode:
            sys.exit(f"Slurm did not start: {done.stderr}")
        self.ask("scontrol", "setdebug", "debug2")

    def ask(self, *words, **more):
        return subprocess.run([self.tool, "in", f"{self.folder}/c", *words], capture_output=True, text=True, timeout=60, **more)

    def field(self, job, name):
        for word in self.ask("scontrol", "show", "job", job, "-o").stdout.split():
            if word.startswith(name + "="):
                return word.split("=", 1)[1]
        return None

    def stop(self):
        subprocess.run([self.tool, "stop", f"{self.folder}/c"], capture_output=True)


def wait(what, test, limit):
    until = time.time() + limit
    while time.time() < until:
        if test():
            return True
        time.sleep(0.5)
    print(f"gave up waiting for {what}", flush=True)
    return False


def steps(folder):
    try:
        return [json.loads(line) for line in open(f"{folder}/steps.jsonl")]
    except (OSError, ValueError):
        return []


def play(cluster, name):
    folder = os.path.join(cluster.folder, name)
    os.makedirs(f"{folder}/bin")
    args = cluster.args
    with open(f"{folder}/bin/ringleader", "w") as file:
        # No name service knows the node names of this cluster, and the fault is planted.
        file.write(f"#!/bin/sh\nexport RINGLEADER_ADDRESS=10.97.0.${{SLURMD_NODENAME#n}}\nshift\n"
                   f"exec {args.ringleader} run --unstable-verdict {folder}/verdict.json --no-history --no-ras --lost-after 20 "
                   f"--silence-floor 20 --end-grace 2 \"$@\"\n")
    os.chmod(f"{folder}/bin/ringleader", 0o755)
    n_least = 2 if name == "spare" else 3
    program = [sys.executable, f"{HERE}/small.py"]
    if name == "fail":
        program = ["sh", "-c", "sleep 2; echo step 1 loss 1; sleep 2; exit 7"]
    else:
        program += ["--rank", "{node_rank}", "--world", "{nnodes}", "--master", "{master_addr}:{master_port}", "--dir", folder,
                    "--steps", str(args.steps), "--resume", "{checkpoint}"]
    made = subprocess.run([args.ringleader, "run", "--print-scripts", f"{folder}/jobs", "--hub", f"dir:{folder}/hub", "--nodes", "3",
                           "--min-nodes", str(n_least), "--checkpoints", f"{folder}/ckpt", "--", *program],
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with open(f"{folder}/jobs/policy.toml", "w") as file:
        file.write(POLICY.format(requeue=int(name == "requeue")))
    n = "4" if name == "spare" else "3"
    where = [] if name == "spare" else ["-x", "n4"] if name != "requeue" else []
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    env.pop("RINGLEADER_HUB", None)
    if name == "requeue":
        # Ensures that n2 is among the first three.
        cluster.ask("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=wait")
    sent = cluster.ask("sbatch", "--parsable", "-N", n, *where, "-D", folder, "-o", f"{folder}/out", f"{folder}/jobs/job.sbatch", env=env, cwd=folder)
    job = sent.stdout.strip()
    row = {"scene": name, "job": job, "folder": folder}
    if not job:
        return {**row, "is_well": False, "why": sent.stderr}
    if name != "fail":
        row["began"] = wait("the first steps", lambda: len(steps(folder)) >= 12, 90)
    if name == "requeue":
        cluster.ask("scontrol", "update", "NodeName=n4", "State=RESUME")
    struck = time.time()
    if name in ("spare", "requeue"):
        # One of the nodes that run the job: with a spare it may be any.
        launched = {}
        for path in glob.glob(f"{folder}/ringleader-run-{job}-n*/holder.json"):
            launcher = json.load(open(path))["launched"]
            if launcher:
                launched[path.split("/")[-2].rsplit("-", 1)[1]] = launcher["pid"]
        bad = "n2" if "n2" in launched else max(launched)
        row["bad"] = bad
        verdict = {**VERDICT, "summary": f"planted: the GPU of {bad} is gone", "culprits": [{"host": bad}]}
        json.dump(verdict, open(f"{folder}/verdict.json", "w"))
        os.kill(launched[bad], 9)
    if name == "cancel":
        cluster.ask("scancel", job)
    if name == "requeue":
        row["excluded"] = wait("the requeue", lambda: cluster.field(job, "ExcNodeList") == "n2", 60) and "n2"
        row["restarts"] = cluster.field(job, "Restarts")
        # By default Slurm waits two minutes.
        wait("its wait", lambda: cluster.field(job, "JobState") == "PENDING", 60)
        cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
    row["ended"] = wait("the end", lambda: cluster.field(job, "JobState") in ends, args.limit)
    row["state"], row["exit"] = cluster.field(job, "JobState"), cluster.field(job, "ExitCode")
    row["nodes"] = cluster.field(job, "NodeList")
    all_steps = steps(folder)
    row["gap_s"] = next((round(s["at"] - struck, 1) for s in all_steps if s["at"] > struck + 1), None)
    final = json.load(open(f"{folder}/final.json")) if os.path.exists(f"{folder}/final.json") else {}
    row["right_sum"] = final.get("total") == args.steps * (args.steps + 1) // 2
    row["node"] = cluster.ask("sinfo", "-h", "-n", row.get("bad", "n2"), "-o", "%T %E").stdout.strip()
    said = open(f"{folder}/out").read() if os.path.exists(f"{folder}/out") else ""
    row["attempts"] = len({line for line in said.splitlines() if " runs, pid" in line and line.startswith("ringleader: attempt")})
    row["launched"] = sum(1 for path in glob.glob(f"{folder}/ringleader-run-*/journal.jsonl") for line in open(path)
                          if json.loads(line)["to"] == "launching")
    if name == "spare":
        n_drains = said.count(f"scontrol update NodeName={row.get('bad')} State=DRAIN")
        row["n_drains"] = n_drains
        row["is_well"] = row["state"] == "COMPLETED" and row["right_sum"] and row["node"].startswith("drain") and n_drains == 1
    elif name == "requeue":
        row["is_well"] = bool(row["state"] == "COMPLETED" and row["right_sum"] and row["excluded"] and row["restarts"] == "1"
                              and "n2" not in expand(cluster, row["nodes"]))
    elif name == "cancel":
        row["is_well"] = row["state"] == "CANCELLED" and row["launched"] == 3 and "ended from outside" in said
    else:
        row["is_well"] = row["state"] == "FAILED" and row["exit"] == "7:0" and row["launched"] == 6
    cluster.ask("scontrol", "update", f"NodeName={row.get('bad', 'n2')}", "State=RESUME")
    return row


def expand(cluster, nodes):
    return cluster.ask("scontrol", "show", "hostnames", nodes or "").stdout.split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--only", default="spare,requeue,cancel,fail")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    args.ringleader = os.path.abspath(args.ringleader)
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged", "ip") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print(f"NOT TESTED: needs root and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
        sys.exit(69)
    cluster = Cluster(args)
    rows = []
    try:
        cluster.start()
        for name in args.only.split(","):
            rows.append(play(cluster, name))
            print(json.dumps(rows[-1]), flush=True)
    finally:
        cluster.stop()
    is_well = len(rows) > 0 and all(row["is_well"] for row in rows)
    if is_well and not args.keep:
        shutil.rmtree(cluster.folder, ignore_errors=True)
    if args.out:
        json.dump(rows, open(args.out, "w"), indent=1)
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
