"""Ratios of bench to nccl-tests, from the folder that bench.sh or latency.sh wrote.

    compare.py FOLDER [--median]

The best round of each, or the median of all rounds with their spread.
"""

import glob
import json
import os
import re
import statistics
import sys

folder = sys.argv[1]
is_median = "--median" in sys.argv[2:]
print("%-16s %12s %12s %12s %8s" % ("collective", "bytes", "nccl-tests", "ringleader", "ratio"))
for name in sorted({os.path.basename(path).split(".")[0] for path in glob.glob(folder + "/*.nccl.*")}):
    theirs, ours = {}, {}
    for path in glob.glob("%s/%s.nccl.*" % (folder, name)):
        for line in open(path):
            # The out-of-place time is the sixth column.
            row = re.match(r"\s+(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", line)
            if row:
                theirs.setdefault(int(row[1]), []).append((float(row[2]), float(row[4])))
    for path in glob.glob("%s/%s.json.*" % (folder, name)):
        for row in json.load(open(path))["rows"]:
            timing = row["out_of_place"]
            ours.setdefault(row["size_bytes"], []).append((timing["time_us"], timing["bus_gb_s"]))
    for size in sorted(set(theirs) & set(ours)):
        if is_median:
            them, us = ([time for time, _ in side[size]] for side in (theirs, ours))
            a, b = statistics.median(them), statistics.median(us)
            spread = "%d rounds, %.2f-%.2f and %.2f-%.2f" % (len(us), min(them), max(them), min(us), max(us))
            print("%-16s %12d %7.2f us   %7.2f us   %8.3f  %s" % (name, size, a, b, b / a if a else 0, spread))
            continue
        them, us = min(theirs[size]), min(ours[size])
        unit, a, b = ("GB/s", them[1], us[1]) if size >= 64 << 20 else ("us", them[0], us[0])
        print("%-16s %12d %7.2f %-4s %7.2f %-4s %8.3f" % (name, size, a, unit, b, unit, b / a if a else 0))
