#!/usr/bin/env python3
"""A node whose GPUs fail a test of the site does not join, and the spare runs the job; after that nothing is repeated.

    zoo/run/preflight.py --ringleader PROGRAM [--good CMD] [--bad CMD] [--out FILE]

Two supervisors on one machine play two nodes that meet in a directory; the job needs one. Before each attempt both run their
command: by default `ringleader verify` for two seconds, on the bad node with a planted fault (needs a GPU).
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 400


def policy(folder, node, command):
    path = os.path.join(folder, f"{node}.toml")
    with open(path, "w") as file:
        file.write(f"version = 1\n[preflight]\ncheck = false\nwithin = \"50s\"\ncommand = {json.dumps(command)}\n")
    return path


def start(args, folder, node, command):
    words = [args.ringleader, "run", "--policy", policy(folder, node, command), "--no-history", "--no-ras", "--job", f"pre-{os.getpid()}",
             "--hub", f"dir:{folder}/hub", "--node", node, "--nodes", "1", "--join-within", "45", "--state", f"{folder}/{node}", "--",
             sys.executable, os.path.join(HERE, "small.py"), "--dir", folder, "--steps", str(STEPS), "--step-ms", "100",
             "--hurry", os.path.join(folder, "hurry"), "--rank", "0", "--world", "1"]
    said = open(os.path.join(folder, f"{node}.said"), "w")
    return subprocess.Popen(words, stdout=said, stderr=said, start_new_session=True)


def journal(folder, node):
    path = os.path.join(folder, node, "journal.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def refusal(folder):
    """Why the bad node cannot join, in its own words."""
    with open(os.path.join(folder, "bad.said"), errors="replace") as file:
        return next((line.strip() for line in file if "cannot join an attempt" in line), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--good", default=None)
    parser.add_argument("--bad", default=None)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    args.ringleader = os.path.abspath(args.ringleader)
    good = args.good or f"{args.ringleader} verify --for 2s"
    folder = tempfile.mkdtemp(prefix="preflight-")
    os.mkdir(os.path.join(folder, "hub"))
    began = time.time()
    # The bad node comes first by name: without the test it would run the job.
    runs = {"bad": start(args, folder, "bad", args.bad or f"{good} --inject product:0"), "good": start(args, folder, "good", good)}
    # The job runs at least until the bad node has its answer.
    while refusal(folder) is None and runs["good"].poll() is None and time.time() < began + args.limit:
        time.sleep(0.1)
    open(os.path.join(folder, "hurry"), "w").close()
    codes = {}
    for node in ("good", "bad"):
        try:
            codes[node] = runs[node].wait(max(1.0, args.limit - (time.time() - began)))
        except subprocess.TimeoutExpired:
            codes[node] = "timeout"
            runs[node].terminate()
            try:
                runs[node].wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(runs[node].pid, signal.SIGKILL)
                runs[node].wait()
    launched = {node: sum(record["to"] == "launching" for record in journal(folder, node)) for node in runs}
    why = refusal(folder)
    total = json.load(open(os.path.join(folder, "final.json")))["total"] if os.path.exists(os.path.join(folder, "final.json")) else None
    row = {"codes": codes, "launched": launched, "why": why, "right_sum": total == STEPS * (STEPS + 1) // 2, "seconds": round(time.time() - began, 1)}
    row["is_well"] = launched == {"bad": 0, "good": 1} and row["right_sum"] and why is not None and codes["good"] == 0
    print(json.dumps(row))
    if args.out:
        with open(args.out, "w") as file:
            json.dump(row, file, indent=1)
    if row["is_well"]:
        shutil.rmtree(folder)
    sys.exit(0 if row["is_well"] else 1)


if __name__ == "__main__":
    main()
