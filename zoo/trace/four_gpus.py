"""Recordings of four ranks and more, with one that is late or one slow link: `four_gpus.py OUT --ringleader BIN [--ranks N]`.

All processes start at once and wait for a file, OUT/go, if `--wait` says so; then they work one after the other. The plants are those
of `wide_plants.py`. Scores of `score.py` are printed at the end. `--budget` is in seconds from the moment that they may work.
"""

import argparse
import glob
import os
import subprocess
import sys
import time

import two_gpus
from two_gpus import HERE, plants, say, wait_until_ready

MAIN = ["d-control", "d-compute-straggler", "d-host-straggler", "d-slow-link"]
SOCKETS = {"ZOO_HOSTS": "2", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}


def start_copier(out, go):
    if not glob.glob("/dev/nvidia[0-9]*"):
        return None
    log = open(f"{out}/copier.log", "w")
    return subprocess.Popen([sys.executable, f"{HERE}/copier.py", "1", "3", go], stdin=subprocess.PIPE, stdout=log, stderr=log)


def score(a, *more):
    done = subprocess.run([sys.executable, f"{HERE}/score.py", f"{a.out}/plants", "--ringleader", a.ringleader, *more], capture_output=True,
                          text=True, check=False)
    print(done.stdout + done.stderr[-2000:], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--start", type=float, default=60, help="seconds that starting may take")
    parser.add_argument("--wait", action="store_true", help="work when OUT/go exists")
    parser.add_argument("--pack", help="folder for an archive of everything, with nothing else to do")
    a = parser.parse_args()
    a.out, a.ringleader = os.path.abspath(a.out), os.path.abspath(a.ringleader)
    if a.pack:
        two_gpus.pack(a.out, a.pack, os.path.basename(a.out), 3)
        return
    os.makedirs(f"{a.out}/plants", exist_ok=True)
    go = f"{a.out}/copier.go"
    copier = start_copier(a.out, go)
    main_job = plants(a.out, "main", MAIN, a.budget * 0.75, {"ZOO_COPIER": go}, a.ranks)
    sockets = plants(a.out, "sockets", ["d-sockets"], a.budget, SOCKETS, a.ranks)
    wait_until_ready(a.out, ["main", "sockets"], a.start, a.ranks)
    print("ready", flush=True)
    until = time.monotonic() + 600
    while a.wait and not os.path.exists(f"{a.out}/go") and time.monotonic() < until:
        time.sleep(0.1)
    end = time.monotonic() + a.budget
    for job, share in ((main_job, 0.8), (sockets, 1.0)):
        job.work()
        job.end(max(1.0, end - time.monotonic() - a.budget * (1 - share)))
    if copier:
        copier.stdin.close()
        try:
            copier.wait(5)
        except subprocess.TimeoutExpired:
            copier.kill()
    say("recorded")
    for log in sorted(glob.glob(f"{a.out}/*.rank0.log")) + [f"{a.out}/copier.log"]:
        for line in open(log, errors="replace") if os.path.exists(log) else []:
            if "GB/s" in line or line.startswith("failed:") or "no time" in line:
                print(os.path.basename(log), line.strip())
    sys.stdout.flush()
    score(a)


if __name__ == "__main__":
    main()
