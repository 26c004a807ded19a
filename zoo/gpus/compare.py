"""Ratios of bench to nccl-tests, from the folder that bench.sh wrote: the best round of each."""

import glob
import json
import os
import re
import sys

folder = sys.argv[1]
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
        them, us = min(theirs[size]), min(ours[size])
        unit, a, b = ("GB/s", them[1], us[1]) if size >= 64 << 20 else ("us", them[0], us[0])
        print("%-16s %12d %7.2f %-4s %7.2f %-4s %8.3f" % (name, size, a, unit, b, unit, b / a if a else 0))
