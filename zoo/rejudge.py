#!/usr/bin/env python3
"""Diagnoses the bundles of recorded live runs again, to show the effect of a rule change on all of them without a GPU.

    zoo/rejudge.py target/release/ringleader FOLDER…        folders written by zoo/live.py --bundles --record
    zoo/rejudge.py target/release/ringleader FOLDER… --before OTHER_PROGRAM     only what differs between the two

Prints each run with a wrong cause or rank, then the totals. Runs without a bundle (no stall, or a silent watcher) are
counted separately. Exits with 1 if nothing could be diagnosed.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def judge(program, run):
    bundles = sorted((run / "bundle").glob("*.tar.zst"))
    if not bundles:
        return None
    done = subprocess.run([program, "diagnose", bundles[0], "--format", "json"], capture_output=True, text=True, timeout=300)
    try:
        verdict = json.loads(done.stdout)["verdict"]
    except ValueError:
        return {"cause": f"no answer: {done.stderr.strip()[:200]}", "ranks": [], "confidence": "-"}
    ranks = sorted(c["rank"] for c in verdict["culprits"] if c.get("rank") is not None)
    return {"cause": verdict["cause"], "ranks": ranks, "confidence": verdict["confidence"]}


def right(answer, want):
    """Whether the cause and the rank are right, as zoo/live.py counts them."""
    ranks, wanted = set(answer["ranks"]), set(want.get("ranks") or [])
    return answer["cause"] in (want.get("causes") or ["none"]), not wanted or bool(ranks) and ranks <= wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--before", help="another build, to compare with")
    args = parser.parse_args()
    runs = sorted(path.parent for folder in args.folders for path in folder.rglob("result.json"))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda run: judge(args.program, run), runs))
        before = list(pool.map(lambda run: judge(args.before, run), runs)) if args.before else [None] * len(runs)
    n = n_cause = n_both = n_before = n_without = 0
    for run, answer, old in zip(runs, answers, before):
        want = json.loads((run / "result.json").read_text()).get("want") or {}
        if answer is None:
            n_without += 1
            continue
        n += 1
        cause, rank = right(answer, want)
        n_cause += cause
        n_both += cause and rank
        n_before += bool(old) and all(right(old, want))
        differs = bool(old) and old != answer
        if differs if args.before else not (cause and rank):
            mark = "right" if cause and rank else "WRONG"
            was = f", was {old['cause']} {old['ranks']}" if differs else ""
            print(f"{mark} {run.name}: {answer['cause']} {answer['ranks']} {answer['confidence']}{was}; "
                  f"planted {'/'.join(want.get('causes') or ['none'])} {want.get('ranks')}")
    beside = f" (before: {n_before})" if args.before else ""
    print(f"{n} bundles: cause right in {n_cause}, cause and ranks in {n_both}{beside}; {n_without} runs without a bundle")
    return 0 if n else 1


sys.exit(main())
