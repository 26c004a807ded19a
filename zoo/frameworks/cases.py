#!/usr/bin/env python3
"""Turns recordings of run.py into cases (case.toml and evidence/).

    zoo/frameworks/cases.py --into unseen/frameworks-1 --into unseen/frameworks-2 RECORDINGS...

Each case goes to a random one of the folders. The truth is the planted fault from declared.py.
"""

import argparse
import json
import os
import pickle
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import importlib  # noqa: E402

DECLARED = importlib.import_module(os.environ.get("ZOO_DECLARED", "declared"))
FAULTS, JOBS = DECLARED.FAULTS, DECLARED.JOBS

JOB = {job.name: job for job in JOBS}
FAULT = {(f.job, f.name): f for f in FAULTS}
LIMIT = 290 * 1024
HANG = {"extra-collective", "skipped-collective", "collective-desync", "uneven-inputs", "op-mismatch", "shape-mismatch", "dtype-mismatch",
        "collective-order-mismatch", "unmatched-p2p", "rank-exited-early", "process-stopped", "stuck-outside-collective", "slow-rank-stall",
        "gpu-kernel-stuck", "nccl-env-mismatch"}
INIT = {"missing-rank", "rank-env-misconfigured", "duplicate-gpu", "port-in-use", "hostname-resolution", "launcher-failure", "wrong-interface",
        "too-many-open-files"}
# No evidence available to a user distinguishes these from a running job, or the job did not end as planted.
LEFT_OUT = {
    "ddp/gather-uneven": "the sizes differed and the gather went through: wrong numbers, no trace",
    "jacobi/sigint": "the log only ends",
    "mpi-torch/sigterm": "the log only ends",
    "deepspeed/sigterm": "the log only ends",
    "cupy/port-in-use": "nothing was printed",
    "pipeline/slow-stage": "the other jobs on the same GPUs blur the times",
}
LEFT_OUT = getattr(DECLARED, "LEFT_OUT", LEFT_OUT)


def toml(value):
    return json.dumps(value, ensure_ascii=False)


def cut(text):
    """Removes the middle of a very long log, as in a bug report."""
    if len(text) <= LIMIT:
        return text
    head, tail = text[: LIMIT // 2].rpartition(b"\n")[0], text[-LIMIT // 2 :].partition(b"\n")[2]
    gone = text.count(b"\n") - head.count(b"\n") - tail.count(b"\n")
    return head + b"\n\n[... %d lines cut ...]\n\n" % gone + tail


def dump(data, size):
    """The Flight Recorder dump that a smaller buffer would have produced."""
    if len(data) <= size:
        return data
    try:
        whole = pickle.loads(data)
        entries = whole["entries"]
        while len(data) > size and len(entries) > 100:
            entries = entries[len(entries) // 4 :]
            whole["entries"] = entries
            data = pickle.dumps(whole)
    except Exception as error:
        print("dump:", error)
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--into", action="append", required=True)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--recorded", default="recorded on two NVIDIA H200, 2026-11", help="the machine; for four ranks say so")
    given = parser.parse_args()

    found = {}
    for top in given.recordings:
        versions = dict(line.split()[:2] for line in open(top + "/machine.txt") if len(line.split()) == 2 and "/" not in line)
        for name in sorted(os.listdir(top)):
            if os.path.exists(f"{top}/{name}/meta.json"):
                found[name] = (f"{top}/{name}", versions)          # the latest recording counts
    names = sorted(found)
    random.Random(given.seed).shuffle(names)
    rows = []
    for number, name in enumerate(names):
        folder, versions = found[name]
        meta = json.load(open(folder + "/meta.json"))
        key = f"{meta['job']}/{meta['fault']}"
        fault, job = FAULT[(meta["job"], meta["fault"])], JOB[meta["job"]]
        if key in LEFT_OUT:
            rows.append((key, fault.cause, "left out: " + LEFT_OUT[key]))
            continue
        case = os.path.join(given.into[number % len(given.into)], name)
        shutil.rmtree(case, ignore_errors=True)
        os.makedirs(case + "/evidence")
        dumps = [n for n in os.listdir(folder) if n.startswith("nccl_trace")]
        for file in sorted(os.listdir(folder)):
            if file in ("meta.json", "program"):
                continue
            data = open(f"{folder}/{file}", "rb").read()
            if file.startswith("nccl_trace"):
                data = dump(data, 240 * 1024 // len(dumps))
            else:
                data = cut(data)
            if not data and file == "train.log":
                continue
            target = "launch.log" if file == "train.log" and job.launch == "loop" else file
            with open(f"{case}/evidence/{target}", "wb") as out:
                out.write(data)
        if job.launch == "loop" and DECLARED.__name__ == "declared":
            # Older recordings lack empty logs: every started rank has a log, even an empty one.
            stem = "proc" if job.name == "jax" else "rank"
            for rank in range(1 if fault.name in ("missing", "missing-rank") else 2):
                open(f"{case}/evidence/{stem}{rank}.log", "a").close()
        text = b"".join(open(f"{case}/evidence/{n}", "rb").read() for n in os.listdir(case + "/evidence") if n.endswith(".log"))
        category = fault.category or ("none" if fault.cause == "none" else "hang" if fault.cause in HANG else "init" if fault.cause in INIT else
                                      "corruption" if fault.cause == "nan-loss" and b"FAILED" not in text else "crash")
        what = ", ".join(f"{p} {versions.get(p, versions.get(p + '-cuda13x', '?'))}" for p in job.packages) or "C++ and Open MPI 5.0.11"
        launcher = {"torchrun": "torchrun", "accelerate": "accelerate launch", "python": "its own launcher", "deepspeed": "the deepspeed launcher",
                    "loop": "a shell loop", "mpirun": "mpirun (Open MPI 5.0.11)", "binary": "mpirun"}[job.launch]
        sure = "medium" if len(fault.also) > 2 or fault.ranks_also else "high"
        lines = [
            f"origin = {toml(f'{what}, NCCL ' + versions.get('nvidia-nccl-cu13', '?') + f', under {launcher}; {given.recorded}')}",
            f"category = {toml(category)}",
            f"cause = {toml(fault.cause)}",
            f"also_right = {toml([c for c in fault.also if c != fault.cause])}",
            f"culprit_ranks = {toml(list(fault.ranks))}",
        ]
        if fault.ranks and fault.ranks_also:
            lines.append(f"culprit_also = {toml([list(r) for r in fault.ranks_also])}")
        lines += [
            'culprit_host = ""',
            'where = ""',
            f"fix = {toml('planted: ' + fault.says + ('; ' + fault.why if fault.why else ''))}",
            f"confidence = {toml(sure)}",
        ]
        with open(case + "/case.toml", "w") as out:
            out.write("\n".join(lines) + "\n")
        end = "ended by itself, exit %s" % meta["exit"] if "exit" in meta else "hung, looked at and ended" if "hung_s" in meta else "hung or went on until its limit"
        rows.append((key, fault.cause, f"{end}, {meta.get('seconds')} s -> {os.path.basename(os.path.dirname(case))}"))
    for row in sorted(rows):
        print("%-34s %-26s %s" % row)


if __name__ == "__main__":
    main()
