#!/usr/bin/env python3
"""Real torchrun jobs (gloo, CPU) under `ringleader run`, each with a fault planted at a random step.

    zoo/run/faults.py --ringleader target/debug/ringleader --python python3 --runs 40 --seed 1 --out report.json [--torchrun]

For each: whether the class is right, whether training ends with the loss of an uninterrupted run, whether a step at or below the
checkpoint was repeated, whether `run` states the lost steps, and the time from the fault to the next attempt's first step.
With --torchrun, the same faults under
`torchrun --max-restarts 3` alone, for comparison.
"""

import argparse
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Fault, the right class, and the outcome of the run: it recovers, or stops as for a program fault.
FAULTS = {
    "kill": ("transient", "recovers"),
    # The newest checkpoint is truncated as well.
    "torn": ("transient", "recovers"),
    "segfault": ("unknown", "recovers"),
    "abort": ("unknown", "recovers"),
    "exception": ("program", "recovers"),
    "exception-again": ("program", "stops"),
    "shape-again": ("program", "stops"),
    "early-exit": ("program", "recovers"),
    "exit": ("program", "recovers"),
    "stop": ("external", "stopped"),
    "sleep": ("unknown", "recovers"),
    "cuda-oom": ("program", "recovers"),
    "disk": ("unknown", "recovers"),
}
POLICY = """version = 1
[budget]
unknown = { max = 3, per = "1h" }
[backoff]
first = "1s"
cap = "2s"
[stall]
grace = "2s"
"""


def job(folder, args, plan, resume):
    with open(os.path.join(folder, "plan.json"), "w") as file:
        json.dump(plan, file)
    out = [os.path.join(HERE, "train.py"), "--dir", folder, "--steps", str(args.steps), "--save-every", "10",
           "--step-ms", "30", "--backend", args.backend, "--plan", os.path.join(folder, "plan.json")]
    return out + (["--resume", resume] if resume else [])


def torchrun(args, more=()):
    return [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks), *more]


def steps(folder):
    with open(os.path.join(folder, "steps.jsonl")) as file:
        return [json.loads(line) for line in file]


def final(folder):
    path = os.path.join(folder, "final.json")
    return json.load(open(path)) if os.path.exists(path) else None


def journal(folder):
    with open(os.path.join(folder, "state", "journal.jsonl")) as file:
        return [json.loads(line) for line in file]


def gap(folder):
    """Seconds from the (first) fault to the next attempt's first step."""
    struck = sorted(float(open(path).read()) for path in glob.glob(os.path.join(folder, "struck-*")))
    if not struck:
        return None
    before = [s for s in steps(folder) if s["at"] <= struck[0]]
    last = before[-1]["step"] if before else 0
    later = [s["at"] for s in steps(folder) if s["at"] > struck[0] and s["step"] <= last + 1]
    return round(later[0] - struck[0], 2) if later else None


def one(args, name, seed, wanted):
    chance = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="run-")
    fault = name.removesuffix("-again")
    plan = {"fault": fault, "rank": chance.randrange(args.ranks), "step": chance.randrange(4, args.steps - 4),
            "times": 9 if name.endswith("-again") else 1}
    with open(os.path.join(folder, "policy.toml"), "w") as file:
        file.write(POLICY)
    command = [args.ringleader, "run", "--policy", os.path.join(folder, "policy.toml"), "--no-history",
               "--state", os.path.join(folder, "state"), "--checkpoints", os.path.join(folder, "ckpt"),
               "--silence-floor", str(args.silence), "--end-grace", "3", "--", *torchrun(args), *job(folder, args, plan, "{checkpoint}")]
    began = time.time()
    with open(os.path.join(folder, "said"), "w") as said:
        try:
            code = subprocess.run(command, stdout=said, stderr=said, timeout=300).returncode
        except subprocess.TimeoutExpired:
            code = "timeout"
    records = journal(folder)
    verdicts = [r["verdict"] for r in records if r["verdict"]]
    expected, ends = FAULTS[name]
    first = verdicts[0] if verdicts else {}
    row = {"fault": name, "plan": plan, "cause": first.get("cause"), "class": first.get("class"), "expected": expected,
           "is_right": first.get("class") == expected, "n_verdicts": len(verdicts), "code": code,
           "seconds": round(time.time() - began, 1), "gap_s": gap(folder), "end": records[-1]["to"],
           "step_lost": [r["step_lost"] for r in records if r["step_lost"] is not None], "folder": folder}
    if ends == "recovers":
        row["same_loss"] = final(folder) == wanted
        row["repeated_too_early"] = too_early(folder, records)
        row["lost_is_right"] = row["step_lost"] == lost(folder)
        row["is_well"] = row["same_loss"] and not row["repeated_too_early"] and row["lost_is_right"] and code == 0
        if name == "torn":
            row["is_told"] = "checkpoint skipped: " in open(os.path.join(folder, "said")).read()
            row["is_well"] = row["is_well"] and row["is_told"]
    elif ends == "stops":
        text = open(os.path.join(folder, "said")).read()
        row["traceback_on_top"] = "The first rank that failed said" in text
        row["is_well"] = row["end"] == "stopped" and len(verdicts) == 2 and row["traceback_on_top"]
    else:
        row["is_well"] = row["end"] == "stopped"
    if row["is_right"] and row["is_well"] and not args.keep:
        shutil.rmtree(folder)
    return row


def too_early(folder, records):
    """Whether a step at or below the attempt's checkpoint was repeated."""
    used = [r["checkpoint"]["step"] for r in records if r["to"] == "backoff" and r["checkpoint"]]
    order = [s["step"] for s in steps(folder)]
    backs = [(a, b) for a, b in zip(order, order[1:]) if b <= a]
    return any(b <= from_step for (_, b), from_step in zip(backs, used))


def lost(folder):
    """Repeated steps, for each restart."""
    order = [s["step"] for s in steps(folder)]
    return [a - b + 1 for a, b in zip(order, order[1:]) if b <= a]


def bare(args, name, seed):
    """The same fault under torchrun's own restart, which has no checkpoint logic: the program looks for the newest checkpoint itself."""
    chance = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="bare-")
    plan = {"fault": name, "rank": chance.randrange(args.ranks), "step": chance.randrange(4, args.steps - 4), "times": 1}
    command = torchrun(args, ["--max-restarts", "3"]) + job(folder, args, plan, "auto") + ["--timeout", "30"]
    began = time.time()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        code = child.wait(timeout=args.bare_timeout)
    except subprocess.TimeoutExpired:
        code = "timeout"
        child.terminate()
        child.wait()
    row = {"torchrun_alone": True, "fault": name, "plan": plan, "code": code, "seconds": round(time.time() - began, 1),
           "gap_s": gap(folder)}
    shutil.rmtree(folder)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", default="target/debug/ringleader")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=None)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--silence", type=float, default=5)
    parser.add_argument("--bare-timeout", type=float, default=200)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--out", default="run-faults.json")
    parser.add_argument("--torchrun", action="store_true")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    args.ringleader = os.path.abspath(args.ringleader)
    folder = tempfile.mkdtemp(prefix="whole-")
    subprocess.run(torchrun(args) + job(folder, args, {}, None), check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    wanted = final(folder)
    names = args.only.split(",") if args.only else list(FAULTS)
    from concurrent.futures import ThreadPoolExecutor

    def told(row):
        print(json.dumps(row), flush=True)
        return row

    with ThreadPoolExecutor(args.parallel) as pool:
        jobs = [pool.submit(lambda n=n: told(one(args, names[n % len(names)], args.seed * 1000 + n, wanted)))
                for n in range(args.runs)]
        alone = ["kill", "segfault", "exception", "sleep"] if args.torchrun else []
        others = [pool.submit(lambda n=n, name=name: told(bare(args, name, args.seed * 1000 + n)))
                  for n, name in enumerate(alone)]
        rows, bares = [job.result() for job in jobs], [job.result() for job in others]
    gaps = sorted(row["gap_s"] for row in rows if row["gap_s"] is not None)
    summary = {"runs": len(rows), "right": sum(row["is_right"] for row in rows), "well": sum(row["is_well"] for row in rows),
               "median_gap_s": gaps[len(gaps) // 2] if gaps else None}
    for name in sorted({row["fault"] for row in rows}):
        of = [row for row in rows if row["fault"] == name]
        times = sorted(row["gap_s"] for row in of if row["gap_s"] is not None)
        summary[name] = {"runs": len(of), "right": sum(row["is_right"] for row in of), "well": sum(row["is_well"] for row in of),
                         "causes": sorted({row["cause"] or "-" for row in of}), "gaps_s": times}
    with open(args.out, "w") as file:
        json.dump({"summary": summary, "rows": rows, "torchrun": bares}, file, indent=1)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
