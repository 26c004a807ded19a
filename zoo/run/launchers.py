#!/usr/bin/env python3
"""Tests every launcher under `ringleader run`: small.py on two ranks (plain python: one), a killed rank, a program error, a signal.

    zoo/run/launchers.py --ringleader PROGRAM [--bin FOLDER] [--only python,torchrun,accelerate,deepspeed,mpirun,srun] [--out FILE]

Searches launchers in --bin (the bin folder of a virtual environment), then in the PATH. Missing launchers are reported and
skipped; if all are missing, the script exits with 69. srun needs root and Debian's Slurm (zoo/slurm.sh): each task is a `run`.

    killed   one rank is killed once: the job recovers and succeeds, the verdict names the killed rank
    dies     it is killed in every attempt: one restart, then the launcher's own exit code
    raises   the program raises in every attempt: stopped at the second, the traceback first, the launcher's own exit code
    ended    SIGTERM to `run`: nothing is restarted

The launcher's own exit code is that of the same command without `run`. After each scene no process of the job may remain.
"""

import argparse
import glob
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small.py")
STEPS, AT, BY = 40, 17, 1
POLICY = """version = 1
[budget]
transient = { max = 1, per = "1h" }
unknown = { max = 1, per = "1h" }
[backoff]
first = "300ms"
cap = "1s"
[preflight]
check = false
"""
SCENES = {"killed": ["--fault", "kill"], "dies": ["--fault", "kill", "--again"], "raises": ["--fault", "exception", "--again"],
          "ended": []}
LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "mpirun", "srun")


class Site:
    """Paths and command lines of the launchers."""

    def __init__(self, args):
        self.args = args
        self.path = os.pathsep.join([args.bin] * bool(args.bin) + [os.environ["PATH"]])
        self.cluster = None
        self.n = 0

    def env(self):
        more = {"PATH": self.path, "DS_ACCELERATOR": "cpu", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # Ignore the hub of a cluster and variables of a job.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RINGLEADER_", "SLURM_"))}
        return {**kept, **more}

    def missing(self, name):
        """Why the launcher cannot be tested here; None if it can."""
        program = {"python": sys.executable}.get(name, name)
        if not shutil.which(program, path=self.path):
            return f"{name} is not installed"
        if name in ("torchrun", "accelerate", "deepspeed"):
            word = shutil.which(name, path=self.path)
            try:
                done = subprocess.run([word, "--help"], env=self.env(), capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                return f"{name} --help does not end"
            if done.returncode:
                return f"{name} does not start: {done.stderr.strip().splitlines()[-1:]}"
        if name == "srun":
            if os.geteuid() != 0:
                return "srun needs root for its cluster"
            return self.start_cluster()
        return None

    def start_cluster(self):
        folder = tempfile.mkdtemp(prefix="launch-slurm-")
        os.chmod(folder, 0o755)
        done = subprocess.run([os.path.join(HERE, "..", "slurm.sh"), "start", f"{folder}/c", "2"], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            return f"no cluster of Slurm: {done.stderr.strip()}"
        self.cluster = folder
        return None

    def stop(self):
        if self.cluster:
            subprocess.run([os.path.join(HERE, "..", "slurm.sh"), "stop", f"{self.cluster}/c"], capture_output=True)
            shutil.rmtree(self.cluster, ignore_errors=True)

    def program(self, folder, scene, world):
        by = min(BY, world - 1)
        return [SMALL, "--dir", folder, "--steps", str(STEPS), "--step-ms", "50", "--at", str(AT), "--by", str(by), *SCENES[scene]]

    def command(self, name, folder, scene, port, resume):
        """The launcher's command line; for srun the command line of its task."""
        python = shutil.which("python", path=self.path) or sys.executable
        program = self.program(folder, scene, 1 if name == "python" else 2) + resume
        if name == "python":
            return [python, *program, "--world", "1", "--rank", "0"]
        if name == "torchrun":
            return ["torchrun", "--standalone", "--nproc-per-node", "2", *program]
        if name == "accelerate":
            return ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
                    "--dynamo_backend", "no", "--main_process_port", port, *program]
        if name == "deepspeed":
            return ["deepspeed", "--num_accelerators", "2", "--master_port", port, *program]
        if name == "mpirun":
            return ["mpirun", "--oversubscribe", "-n", "2", python, *program, "--master", f"127.0.0.1:{port}"]
        return [python, *program]

    def under_run(self, name, folder, scene):
        self.n += 1
        job = f"launch-{os.getpid()}-{self.n}"
        with open(f"{folder}/policy.toml", "w") as file:
            file.write(POLICY)
        options = ["run", "--policy", f"{folder}/policy.toml", "--no-history", "--no-ras", "--job", job, "--checkpoints", f"{folder}/ckpt",
                   "--silence-floor", "20"]
        resume = ["--resume", "{checkpoint}"]
        if name != "srun":
            return [self.args.ringleader, *options, "--state", f"{folder}/state", "--",
                    *self.command(name, folder, scene, "{master_port}", resume)]
        task = f"{folder}/task.sh"
        nodes = ["--hub", f"dir:{folder}/hub", "--nodes", "2", "--lost-after", "20", "--"]
        meet = ["--rank", "{node_rank}", "--world", "{nnodes}", "--master", "{master_addr}:{master_port}"]
        words = [*options, *nodes, *self.command(name, folder, scene, "", resume), *meet]
        with open(task, "w") as file:
            # No name service knows the nodes of this cluster.
            file.write("#!/bin/sh\nexport RINGLEADER_ADDRESS=10.97.0.${SLURMD_NODENAME#n}\n"
                       f"exec {self.args.ringleader} run --state {folder}/state-$SLURMD_NODENAME {shlex.join(words[1:])}\n")
        os.chmod(task, 0o755)
        return self.srun(task)

    def srun(self, *words):
        return [os.path.join(HERE, "..", "slurm.sh"), "in", f"{self.cluster}/c", "srun", "-N2", "-n2", "--kill-on-bad-exit=0", *words]

    def bare(self, name, folder, scene):
        """The exit code of the same command without `run`."""
        port = str(20500 + (os.getpid() + self.n) % 7000)
        self.n += 1
        command = self.command(name, folder, scene, port, [])
        if name == "srun":
            command = self.srun(*command, "--master", f"10.97.0.1:{port}")
        try:
            return as_shell(subprocess.run(command, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL, timeout=self.args.limit, cwd=folder).returncode)
        except subprocess.TimeoutExpired:
            return "timeout"


def as_shell(code):
    """The exit code as a shell reports it: 128 plus the signal's number."""
    return code if code >= 0 else 128 - code


def processes(folder):
    """Processes whose command line names the folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in words and str(os.getpid()) != path.split("/")[2]:
            found.append(words.strip()[:120])
    return found


def records(folder):
    out = []
    for path in sorted(glob.glob(f"{folder}/state*/journal.jsonl")):
        with open(path) as file:
            out.append([json.loads(line) for line in file])
    return out


def play(site, name, scene):
    folder = tempfile.mkdtemp(prefix=f"launch-{name}-{scene}-")
    os.chmod(folder, 0o755)
    row = {"launcher": name, "scene": scene, "folder": folder}
    if scene in ("dies", "raises"):
        other = tempfile.mkdtemp(prefix=f"launch-{name}-bare-")
        os.chmod(other, 0o755)
        row["bare_code"] = site.bare(name, other, scene)
        shutil.rmtree(other, ignore_errors=True)
    command = site.under_run(name, folder, scene)
    with open(f"{folder}/said", "w") as said:
        run = subprocess.Popen(command, env=site.env(), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=folder)
        if scene == "ended":
            until = time.time() + site.args.limit
            while not os.path.exists(f"{folder}/ckpt/step_10.safetensors") and time.time() < until and run.poll() is None:
                time.sleep(0.1)
            for pid in [run.pid] if name != "srun" else holders(folder):
                os.kill(pid, signal.SIGTERM)
        try:
            row["code"] = as_shell(run.wait(site.args.limit))
        except subprocess.TimeoutExpired:
            row["code"] = "timeout"
            # It ends its job.
            run.terminate()
            try:
                run.wait(90)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
    with open(f"{folder}/said", errors="replace") as said:
        judge(row, name, scene, folder, said.read())
    until = time.time() + 10
    while processes(folder) and time.time() < until:
        time.sleep(0.2)
    row["left"] = processes(folder)
    row["is_well"] = not row["left"] and all(row["checks"].values())
    if row["is_well"] and not site.args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def holders(folder):
    out = []
    for path in glob.glob(f"{folder}/state*/holder.json"):
        with open(path) as file:
            out.append(json.load(file)["pid"])
    return out


def judge(row, name, scene, folder, said):
    journals = records(folder)
    verdicts = [record["verdict"] for record in journals[0] if record["verdict"]] if journals else []
    first = verdicts[0] if verdicts else {}
    launched = [sum(record["to"] == "launching" for record in journal) for journal in journals]
    row.update(cause=first.get("cause"), cls=first.get("class"), confidence=first.get("confidence"), summary=first.get("summary"),
               launched=launched, ends=[journal[-1]["to"] for journal in journals])
    ranks = [culprit["rank"] for culprit in first.get("culprits", [])]
    checks = row["checks"] = {}
    if scene == "killed":
        final = {}
        if os.path.exists(f"{folder}/final.json"):
            with open(f"{folder}/final.json") as file:
                final = json.load(file)
        checks["right_sum"] = final.get("total") == STEPS * (STEPS + 1) // 2
        checks["code"] = row["code"] == 0
        checks["restarted_once"] = bool(launched) and set(launched) == {2}
    if scene in ("killed", "dies"):
        checks["class"] = row["cls"] == "transient"
        checks["cause"] = row["cause"] == "process-killed"
        # A single process without rank variables has no rank number, deepspeed does not report which rank it was; for tasks the node
        # is named.
        hosts = [culprit["host"] for culprit in first.get("culprits", [])]
        checks["rank"] = name in ("python", "deepspeed") or ranks == [BY] or name == "srun" and hosts == [f"n{BY + 1}"]
    if scene == "raises":
        checks["class"] = row["cls"] == "program"
        # Launchers forward tracebacks of a program without PyTorch without naming a rank: no other rank may be blamed.
        checks["rank"] = set(ranks) - {None} <= {BY}
        lines = [line for line in said.splitlines() if line.startswith("ringleader: ")]
        top = next((at for at, line in enumerate(lines) if "The first rank that failed said" in line), None)
        checks["traceback"] = top is not None and any(f"batch of step {AT} has no label" in line for line in lines[top:top + 30])
        checks["second"] = bool(launched) and set(launched) == {2}
    if scene in ("dies", "raises"):
        checks["code"] = row["code"] == row["bare_code"]
        checks["stopped"] = set(row["ends"]) == {"stopped"}
    if scene == "ended":
        checks["class"] = row["cls"] == "external"
        checks["external"] = "ended from outside (SIGTERM" in said
        checks["not_restarted"] = bool(launched) and set(launched) == {1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--bin", default=None)
    parser.add_argument("--only", default=",".join(LAUNCHERS))
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--limit", type=float, default=400)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    args.ringleader = os.path.abspath(args.ringleader)
    site = Site(args)
    rows = []
    try:
        for name in args.only.split(","):
            why = site.missing(name)
            if why:
                print(f"NOT TESTED: {why}", file=sys.stderr, flush=True)
                continue
            for scene in args.scenes.split(","):
                rows.append(play(site, name, scene))
                print(json.dumps(rows[-1]), flush=True)
    finally:
        site.stop()
    if args.out:
        with open(args.out, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(69 if not rows else 0 if all(row["is_well"] for row in rows) else 1)


if __name__ == "__main__":
    main()
