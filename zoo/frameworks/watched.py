#!/usr/bin/env python3
"""Compares the verdicts of `ringleader watch --json` in runs of run.py --watch with the planted faults.

    zoo/frameworks/watched.py DIR [--table]

DIR contains a folder per run, with meta.json and watch.log. A verdict is right if its cause is the planted one or one that
the declaration lists as defensible; its rank is right if it names exactly the planted ranks (counted apart: or another set of ranks
that the declaration lists as defensible). A healthy run is quiet if it got no verdict
but `none` or `undecided`. A run that the end of the whole program of runs cut short, long before its own limit, is not counted.
"""

import argparse
import collections
import importlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
DECLARED = importlib.import_module(os.environ.get("ZOO_DECLARED", "declared"))
BY_NAME = {f"{fault.job}-{fault.name}": fault for fault in DECLARED.FAULTS}


def verdicts(path):
    """The reports that a watcher printed, oldest first."""
    found = []
    try:
        with open(path, errors="replace") as file:
            for line in file:
                if not line.startswith("{"):
                    continue
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if event.get("event") == "verdict" and event.get("report"):
                    found.append(event["report"]["verdict"])
    except OSError:
        pass
    return found


def was_cut(path, fault):
    try:
        with open(path) as file:
            meta = json.load(file)
    except (OSError, ValueError):
        return False
    return meta.get("limit", False) and meta.get("seconds", 0) < fault.limit - 5


def also(fault):
    return {fault.cause, *fault.also}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    count = collections.Counter()
    for name in sorted(os.listdir(given.dir)):
        fault = BY_NAME.get(name)
        if fault is None or not os.path.isdir(os.path.join(given.dir, name)):
            continue
        if was_cut(os.path.join(given.dir, name, "meta.json"), fault):
            count["cut"] += 1
            if given.table:
                print(f"{name:34} cut short")
            continue
        said = verdicts(os.path.join(given.dir, name, "watch.log"))
        last = said[-1] if said else {"cause": "-", "culprits": []}
        ranks = sorted({c["rank"] for c in last.get("culprits", []) if c.get("rank") is not None})
        if fault.cause == "none":
            count["healthy"] += 1
            quiet = all(v["cause"] in ("none", "undecided") for v in said)
            count["quiet"] += quiet
            row = "quiet" if quiet else "FALSE ALARM"
        else:
            planted = sorted(fault.ranks)
            count["faults"] += 1
            count["said"] += bool(said)
            count["cause"] += last["cause"] in also(fault)
            if planted:
                count["with ranks"] += 1
                count["rank"] += ranks == planted
                count["rank also"] += bool(said) and ranks in (planted, *(sorted(other) for other in fault.ranks_also))
            row = f"{'cause' if last['cause'] in also(fault) else '-':6}{'rank' if planted and ranks == planted else '-':5} planted {fault.cause} {planted}"
        if given.table:
            print(f"{name:34} {row:60} said {last['cause']} {ranks} {last.get('confidence', '')}")
    print(
        f"faults {count['faults']}: a verdict {count['said']}, cause {count['cause']}, rank {count['rank']} "
        f"({count['rank also']} with the defensible ones) of {count['with ranks']}; "
        f"healthy {count['healthy']}, quiet {count['quiet']}; cut short {count['cut']}"
    )


if __name__ == "__main__":
    main()
