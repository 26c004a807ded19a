#!/usr/bin/env python3
"""Real torchrun jobs (gloo, CPU) under `ringleader run`, each with a fault planted at a random step.

    zoo/run/faults.py --ringleader target/debug/ringleader --python python3 --seeds 2 --seed 1 --out report.json [--torchrun]

For each: whether the class is right, whether training ends with the loss of an uninterrupted run, whether a step at or below the
checkpoint was repeated, whether `run` states the lost steps, and the time from the fault to the next attempt's first step.
With --torchrun, some of the same faults (same rank, same step) under `torchrun --max-restarts 3` alone, for comparison.
With --deadline, what has not ended by then is stopped and counted as cut off, neither right nor wrong. The exit code is 0 if 95 % of
the classes are right and every job ended as it should.
"""

import argparse
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

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
    # A rank leaves out one of the step's collectives.
    "skip": ("program", "recovers"),
    "early-exit": ("program", "recovers"),
    "exit": ("program", "recovers"),
    "stop": ("external", "stopped"),
    "sleep": ("unknown", "recovers"),
    "cuda-oom": ("program", "recovers"),
    "disk": ("unknown", "recovers"),
}
# Faults that need a GPU. A kernel that fails its own check does so again with the same data; an illegal access may come from
# the program or from the GPU, and the evidence of one failure does not say which.
ON_GPU = {
    "assert": ("program", "recovers"),
    "illegal": ("unknown", "recovers"),
}
# These end only after somebody has noticed the silence, so they are started first.
SLOW = ("sleep", "stop", "shape", "skip", "early-exit")
# Faults that torchrun alone is given as well.
ALONE = ("kill", "segfault", "exception", "sleep", "early-exit")
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
    if not os.path.exists(os.path.join(folder, "steps.jsonl")):
        return []
    with open(os.path.join(folder, "steps.jsonl")) as file:
        return [json.loads(line) for line in file]


def final(folder):
    path = os.path.join(folder, "final.json")
    return json.load(open(path)) if os.path.exists(path) else None


def journal(folder):
    if not os.path.exists(os.path.join(folder, "state", "journal.jsonl")):
        return []
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
    # The other rank may still end the step of the fault.
    later = [at for at in later if at > struck[0] + 1]
    return round(later[0] - struck[0], 2) if later else None


def planned(args, name, seed, times):
    chance = random.Random(seed)
    return {"fault": name.removesuffix("-again"), "rank": chance.randrange(args.ranks), "step": chance.randrange(4, args.steps - 4),
            "times": times}


def waited(child, args, most):
    """The exit code; "timeout" after `most` seconds, "cut off" at the deadline of the whole script."""
    left = args.until - time.time()
    try:
        return child.wait(timeout=max(0.0, min(most, left)))
    except subprocess.TimeoutExpired:
        # It ends its own job.
        child.terminate()
        try:
            child.wait(20 if most < left else 6)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return "timeout" if most < left else "cut off"


def one(args, name, seed, wanted):
    if time.time() >= args.until:
        return {"fault": name, "seed": seed, "code": "cut off"}
    folder = tempfile.mkdtemp(prefix=f"run-{name}-{seed}-")
    plan = planned(args, name, seed, 9 if name.endswith("-again") else 1)
    with open(os.path.join(folder, "policy.toml"), "w") as file:
        file.write(POLICY)
    command = [args.ringleader, "run", "--policy", os.path.join(folder, "policy.toml"), "--no-history",
               "--state", os.path.join(folder, "state"), "--checkpoints", os.path.join(folder, "ckpt"),
               "--silence-floor", str(args.silence), "--end-grace", "3", "--", *torchrun(args), *job(folder, args, plan, "{checkpoint}")]
    began = time.time()
    with open(os.path.join(folder, "said"), "w") as said:
        code = waited(subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True), args, 300)
    records = journal(folder)
    verdicts = [r["verdict"] for r in records if r["verdict"]]
    expected, ends = {**FAULTS, **ON_GPU}[name]
    first = verdicts[0] if verdicts else {}
    row = {"fault": name, "seed": seed, "plan": plan, "cause": first.get("cause"), "class": first.get("class"),
           "confidence": first.get("confidence"), "expected": expected, "is_right": first.get("class") == expected,
           "n_verdicts": len(verdicts), "code": code, "seconds": round(time.time() - began, 1), "gap_s": gap(folder),
           "end": records[-1]["to"] if records else None,
           "step_lost": [r["step_lost"] for r in records if r["step_lost"] is not None], "folder": folder}
    if ends == "recovers":
        row["same_loss"] = final(folder) == wanted.result()
        row["repeated_too_early"] = too_early(folder, records)
        row["lost_is_right"] = [n for n in row["step_lost"] if n] == lost(folder)
        row["is_well"] = row["same_loss"] and not row["repeated_too_early"] and row["lost_is_right"] and code == 0
        if name == "torn":
            row["is_told"] = "checkpoint skipped: " in open(os.path.join(folder, "said")).read()
            row["is_well"] = row["is_well"] and row["is_told"]
    elif ends == "stops":
        # Ranks that hang in NCCL print nothing: the rank and its call stand for the traceback.
        is_quiet = args.backend == "nccl" and name.startswith("shape")
        row["traceback_on_top"] = has_rank_and_call(verdicts) if is_quiet else has_message_on_top(folder)
        row["is_well"] = row["end"] == "stopped" and len(verdicts) == 2 and row["traceback_on_top"]
    else:
        row["is_well"] = row["end"] == "stopped"
    if code != "cut off" and row["is_right"] and row["is_well"] and not args.keep:
        shutil.rmtree(folder)
    return row


def has_message_on_top(folder):
    """Whether the end shows, above everything else, what the first failing rank printed."""
    with open(os.path.join(folder, "said"), errors="replace") as file:
        lines = [line for line in file if line.startswith("ringleader: ")]
    at = next((at for at, line in enumerate(lines) if "The first rank that failed said" in line), None)
    return at is not None and any("has no label" in line or "rror" in line or "enforce" in line for line in lines[at + 1:at + 45])


def has_rank_and_call(verdicts):
    return all(any(culprit["rank"] is not None for culprit in verdict["culprits"]) and " #" in verdict["summary"] for verdict in verdicts)


def too_early(folder, records):
    """Whether a step at or below the attempt's checkpoint was repeated."""
    used = [r["checkpoint"]["step"] for r in records if r["to"] == "backoff" and r["checkpoint"]]
    order = [s["step"] for s in steps(folder)]
    backs = [(a, b) for a, b in zip(order, order[1:]) if b <= a]
    return any(b <= from_step for (_, b), from_step in zip(backs, used))


def lost(folder):
    """Repeated steps, for each restart that repeated any."""
    order = [s["step"] for s in steps(folder)]
    return [a - b + 1 for a, b in zip(order, order[1:]) if b <= a]


def bare(args, name, seed):
    """The same fault under torchrun's own restart, which has no checkpoint logic: the program looks for the newest checkpoint itself."""
    if time.time() >= args.until:
        return {"torchrun_alone": True, "fault": name, "seed": seed, "code": "cut off", "gap_s": None}
    folder = tempfile.mkdtemp(prefix="bare-")
    plan = planned(args, name, seed, 1)
    command = torchrun(args, ["--max-restarts", "3"]) + job(folder, args, plan, "auto") + ["--timeout", "30"]
    began = time.time()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    code = waited(child, args, args.bare_timeout)
    row = {"torchrun_alone": True, "fault": name, "seed": seed, "plan": plan, "code": code, "seconds": round(time.time() - began, 1),
           "gap_s": gap(folder)}
    shutil.rmtree(folder)
    return row


def whole(args):
    """The final loss of an uninterrupted run."""
    folder = tempfile.mkdtemp(prefix="whole-")
    done = subprocess.run(torchrun(args) + job(folder, args, {}, None), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"the uninterrupted run failed:\n{done.stderr[-3000:]}")
    wanted = final(folder)
    shutil.rmtree(folder)
    return wanted


def summed(rows, bares):
    done = [row for row in rows if row["code"] != "cut off"]
    gaps = sorted(row["gap_s"] for row in done if row["gap_s"] is not None)
    summary = {"runs": len(done), "cut_off": len(rows) - len(done), "right": sum(row["is_right"] for row in done),
               "well": sum(row["is_well"] for row in done), "median_gap_s": gaps[len(gaps) // 2] if gaps else None}
    for name in sorted({row["fault"] for row in done}):
        of = [row for row in done if row["fault"] == name]
        summary[name] = {
            "runs": len(of), "right": sum(row["is_right"] for row in of), "well": sum(row["is_well"] for row in of),
            "causes": sorted({f"{row['cause']} ({row['class']}, {row['confidence']})" for row in of}),
            "lost": [row["step_lost"] for row in of],
            "gaps_s": sorted(row["gap_s"] for row in of if row["gap_s"] is not None),
            "torchrun_alone_s": [row["gap_s"] if row["code"] == 0 else row["code"] for row in bares if row["fault"] == name]}
    return summary


def table(summary):
    """The summary as rows for docs/run.md."""
    lines = ["| fault | runs | class right | well | verdict | gap, s | torchrun alone, gap, s |", "|---|---|---|---|---|---|---|"]
    for name, of in summary.items():
        if isinstance(of, dict):
            words = [", ".join(map(str, of[key])) or "-" for key in ("causes", "gaps_s", "torchrun_alone_s")]
            lines.append(f"| {name} | {of['runs']} | {of['right']} | {of['well']} | {' | '.join(words)} |")
    return "\n".join(lines)


def kept(rows, path):
    """The journals and evidence of all jobs whose folders are left, in one archive."""
    with tarfile.open(path, "w:gz") as archive:
        for row in rows:
            folder = row.get("folder")
            if not folder or not os.path.isdir(folder):
                continue
            files = [os.path.join(folder, name) for name in ("said", "steps.jsonl", "plan.json", "state/journal.jsonl")]
            files += glob.glob(os.path.join(folder, "struck-*"))
            files += glob.glob(os.path.join(folder, "state", "attempts", "*", "*.tar.zst"))
            for file in files:
                if os.path.exists(file) and os.path.getsize(file) < 4 << 20:
                    archive.add(file, os.path.join(os.path.basename(folder), os.path.relpath(file, folder)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", default="target/debug/ringleader")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2, help="runs of each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=None)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--silence", type=float, default=5)
    parser.add_argument("--bare-timeout", type=float, default=200)
    parser.add_argument("--deadline", type=float, default=None, help="seconds for everything")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--out", default="run-faults.json")
    parser.add_argument("--journals", default=None, help="archive of the journals and evidence (keeps all folders)")
    parser.add_argument("--torchrun", action="store_true")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    args.until = time.time() + (args.deadline or 1e9)
    args.keep = args.keep or bool(args.journals)
    args.ringleader = os.path.abspath(args.ringleader)
    names = args.only.split(",") if args.only else [*FAULTS, *(ON_GPU if args.backend == "nccl" else ())]
    def told(row):
        print(json.dumps(row), flush=True)
        return row

    # The number of a fault, and so its plan, does not depend on the faults that are chosen.
    numbers = {name: at for at, name in enumerate([*FAULTS, *ON_GPU])}
    tasks = [(name, args.seed * 1000 + 100 * k + numbers[name]) for k in range(args.seeds) for name in names]
    tasks.sort(key=lambda task: task[0].removesuffix("-again") not in SLOW)
    with ThreadPoolExecutor(args.parallel) as pool, ThreadPoolExecutor(1) as beside:
        wanted = beside.submit(whole, args)
        if args.parallel == 1:
            wanted.result()
        jobs = [pool.submit(lambda t=task: told(one(args, *t, wanted))) for task in tasks]
        alone = {name: seed for name, seed in reversed(tasks) if name in ALONE and args.torchrun}
        others = [pool.submit(lambda n=name, s=seed: told(bare(args, n, s))) for name, seed in alone.items()]
        rows, bares = [job.result() for job in jobs], [job.result() for job in others]
    summary = summed(rows, bares)
    with open(args.out, "w") as file:
        json.dump({"summary": summary, "rows": rows, "torchrun": bares}, file, indent=1)
    if args.journals:
        kept(rows, args.journals)
    print(table(summary))
    print(json.dumps({key: of for key, of in summary.items() if not isinstance(of, dict)}))
    is_reached = summary["right"] >= 0.95 * summary["runs"] and summary["well"] == summary["runs"] == len(rows)
    sys.exit(0 if is_reached else 1)


if __name__ == "__main__":
    main()
