#!/usr/bin/env python3
"""Runs PyTorch's own Flight Recorder analyzer over the recorded cases, in several file orders.

usage: compare_peers.py OUT.json [CASES_DIR]

Needs a Python with torch >= 2.9 (torch.distributed.flight_recorder.fr_trace); no GPU. The answer depends on which dump is
listed first, so each case runs with the dumps in ascending, descending and rotated order. docs/comparison.md summarises the
output."""
import json
import os
import subprocess
import sys

RUN = r"""
import os, sys
order = sys.argv[1].split(",")
walk = os.walk
def ordered(top, *a, **k):
    for root, dirs, files in walk(top, *a, **k):
        yield root, dirs, [f for f in order if f in files]
os.walk = ordered
from torch.distributed.flight_recorder import fr_trace
fr_trace.main(sys.argv[2:])
"""


def main():
    out, cases = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else "cases")
    rows = []
    for name in sorted(os.listdir(cases)):
        folder = os.path.join(cases, name, "evidence")
        dumps = sorted(f for f in os.listdir(folder) if f.startswith("fr_rank")) if os.path.isdir(folder) else []
        if not dumps:
            continue
        orders = [dumps, dumps[::-1]] + [dumps[i:] + dumps[:i] for i in range(1, len(dumps))]
        for order in orders:
            p = subprocess.run([sys.executable, "-c", RUN, ",".join(order), folder, "-p", "fr_rank"],
                               capture_output=True, text=True, timeout=300)
            rows.append({"case": name, "order": order, "rc": p.returncode,
                         "out": (p.stdout + p.stderr)[-6000:]})
            print(name, order, p.returncode, flush=True)
    with open(out, "w") as f:
        json.dump(rows, f, indent=1)


main()
