"""Compares what `ringleader trace` says about recorded plants with their truth: `score.py FOLDER [--ringleader BIN]`.

A cause is right if it is the planted one or one that the plant accepts. Where the plant turned out to cost less than 5 % of a step on
that machine (measured without a profiler, against its control), `none` is right, too. Controls are right without advice. The gain
is compared with the measured one where both are known, also of a control without timelines; it is within 30 % if it differs by less than 30 % of it or by 3 points.
"""

import argparse
import glob
import json
import os
import subprocess

LEAST_PCT = 5.0


def rows(folder):
    for path in sorted(glob.glob(f"{folder}/*/truth.json")):
        yield os.path.basename(os.path.dirname(path)), json.load(open(path))


def said(ringleader, folder, more):
    done = subprocess.run([ringleader, "trace", "--format", "json-v1", *more, folder], capture_output=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"verdict": {"cause": f"exit {done.returncode}", "culprits": []}}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("folder")
    a.add_argument("--ringleader", default="target/release/ringleader")
    a.add_argument("--baseline", help="what `ringleader bench --save` measured on these GPUs")
    a = a.parse_args()
    truths = dict(rows(a.folder))
    count = {"plants": 0, "cause": 0, "ranked": 0, "rank": 0, "controls": 0, "quiet": 0, "gains": 0, "near": 0}
    for name, truth in truths.items():
        if not glob.glob(f"{a.folder}/{name}/*.json*.*") and len(glob.glob(f"{a.folder}/{name}/*.json")) < 2:
            continue
        report = said(a.ringleader, f"{a.folder}/{name}", ["--baseline", a.baseline] if a.baseline else [])
        verdict = report["verdict"]
        control = truths.get(truth.get("control") or "")
        gain = (1 - control["step_ms"] / truth["step_ms"]) * 100 if control else None
        accepted = {truth["cause"], *truth["also_right"]}
        if truth["cause"] != "none" and gain is not None and gain < LEAST_PCT:
            accepted.add("none")
        is_right = verdict["cause"] in accepted
        ranks = sorted(c.get("rank") if isinstance(c, dict) else c for c in verdict.get("culprits", []))
        wanted = sorted(truth["culprit_ranks"])
        kind = "control" if truth["cause"] == "none" else "plant"
        if kind == "control":
            count["controls"] += 1
            count["quiet"] += is_right
        else:
            count["plants"] += 1
            count["cause"] += is_right
        if wanted:
            count["ranked"] += 1
            count["rank"] += ranks == wanted
        told = verdict.get("gain_pct")
        # A gain is judged where the planted cause was said.
        if gain is not None and told is not None and verdict["cause"] == truth["cause"] and kind == "plant" and gain >= LEAST_PCT:
            count["gains"] += 1
            count["near"] += abs(told - gain) <= max(0.3 * gain, 3)
        print(f"{name:24}{kind:8}{'right' if is_right else 'WRONG':6}{'' if not wanted else 'rank' if ranks == wanted else 'RANK':5} "
              f"planted {truth['cause']:22} said {verdict['cause']:22}{ranks!s:6} gain {'-' if told is None else f'{told:.0f}':>4} "
              f"measured {'-' if gain is None else f'{gain:.0f}':>4}  step {truth['step_ms']:.1f} recorded {truth['profiled_ms']:.1f}")
    print(f"cause {count['cause']} of {count['plants']}, rank {count['rank']} of {count['ranked']}, controls without advice "
          f"{count['quiet']} of {count['controls']}, gain near the measured one {count['near']} of {count['gains']}")


if __name__ == "__main__":
    main()
