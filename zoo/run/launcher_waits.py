#!/usr/bin/env python3
"""Launchers of torchrun that wait for a second node, as `diagnose --live` and `watch` see them. No GPU is needed.

    zoo/run/launcher_waits.py --ringleader target/debug/ringleader --python /path/to/python3

The python needs PyTorch. Ends with 1 if a launcher is not named, or one whose ranks are there is.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

PROGRAM = "import time\nimport torch.distributed as dist\ndist.init_process_group('gloo')\ntime.sleep(60)\n"
WAITS = {
    "first node, static": ["--nnodes=2", "--node-rank=0", "--master-addr=localhost", "--master-port=28311"],
    "first node, c10d": ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:28312", "--rdzv-id=7"],
    "second node, no master": ["--nnodes=2", "--node-rank=1", "--master-addr=localhost", "--master-port=28313"],
}
RUNS = {"one node": ["--nnodes=1", "--master-addr=localhost", "--master-port=28314"]}


def start(python, options, folder):
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node=2", *options, "program.py"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def live(ringleader, pid, folder):
    command = [ringleader, "diagnose", "--live", "--pid", str(pid), "--format", "json", "--fail-on", "never", "--keep", f"{pid}.tar.zst"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    try:
        return json.loads(done.stdout)["verdict"]["cause"]
    except ValueError:
        return f"exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}"


def watched(ringleader, pid, folder):
    command = [ringleader, "watch", "--json", "--no-screen", "--for", "50", "--until-verdict", "--out", f"watch-{pid}", "--pid", str(pid)]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    causes = [event["report"]["verdict"]["cause"] for event in events if event["event"] == "verdict"]
    return causes[-1] if causes else "-"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--ringleader", required=True)
    a.add_argument("--python", required=True)
    a = a.parse_args()
    ringleader = os.path.abspath(a.ringleader)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/program.py", "w") as file:
            file.write(PROGRAM)
        python = os.path.abspath(a.python)
        jobs = {name: start(python, options, folder) for name, options in (WAITS | RUNS).items()}
        try:
            time.sleep(15)
            for name, job in jobs.items():
                said = live(ringleader, job.pid, folder)
                is_right = (said == "missing-rank") == (name in WAITS)
                wrong += not is_right
                print(f"{name:24} diagnose --live: {said}{'' if is_right else '   WRONG'}", flush=True)
            name = "first node, c10d"
            said = watched(ringleader, jobs[name].pid, folder)
            wrong += said != "missing-rank"
            print(f"{name:24} watch: {said}{'' if said == 'missing-rank' else '   WRONG'}", flush=True)
        finally:
            for job in jobs.values():
                job.terminate()
            for job in jobs.values():
                job.wait(60)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
