"""Ratios of bench to nccl-tests, from the folder that bench.sh or latency.sh wrote.

    compare.py FOLDER [--median] [--within PCT]

The best round of each, or the median of all rounds with their spread. With --within, bandwidths of 64 MiB and more that differ by
more than this are listed, and the exit code is 1 if bench is lower by more than this anywhere, or if nothing could be compared.
"""

import argparse
import glob
import json
import os
import re
import statistics
import sys

LARGE = 64 << 20


def theirs_in(folder):
    """[(time, us; bus bandwidth, GB/s)] by collective and size."""
    found = {}
    for path in glob.glob(folder + "/*.nccl.*"):
        name = os.path.basename(path).split(".")[0]
        for line in open(path, errors="replace"):
            # The out-of-place time is the sixth column.
            row = re.match(r"\s+(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", line)
            if row:
                found.setdefault((name, int(row[1])), []).append((float(row[2]), float(row[4])))
    return found


def ours_in(folder):
    found = {}
    for path in glob.glob(folder + "/*.json.*"):
        try:
            rows = json.load(open(path))["rows"]
        except ValueError:
            print("unreadable:", path, file=sys.stderr)
            continue
        for row in rows:
            timing = row["out_of_place"]
            found.setdefault((row["collective"], row["size_bytes"]), []).append((timing["time_us"], timing["bus_gb_s"]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--median", action="store_true")
    parser.add_argument("--within", type=float, metavar="PCT")
    given = parser.parse_args()
    theirs, ours = theirs_in(given.folder), ours_in(given.folder)
    large = {}
    print("%-16s %12s %12s %12s %8s" % ("collective", "bytes", "nccl-tests", "ringleader", "ratio"))
    for name, size in sorted(set(theirs) & set(ours)):
        them, us = theirs[name, size], ours[name, size]
        if given.median:
            a, b = (statistics.median(time for time, _ in side) for side in (them, us))
            spread = "%d rounds, %.2f-%.2f and %.2f-%.2f" % (len(us), min(them)[0], max(them)[0], min(us)[0], max(us)[0])
            print("%-16s %12d %7.2f us   %7.2f us   %8.3f  %s" % (name, size, a, b, b / a if a else 0, spread))
            continue
        them, us = min(them), min(us)
        unit, a, b = ("GB/s", them[1], us[1]) if size >= LARGE else ("us", them[0], us[0])
        if size >= LARGE and a:
            large[name, size] = b / a
        print("%-16s %12d %7.2f %-4s %7.2f %-4s %8.3f" % (name, size, a, unit, b, unit, b / a if a else 0))
    if given.within is None:
        return
    share = given.within / 100
    outside = {key: ratio for key, ratio in large.items() if abs(ratio - 1) > share}
    low = [key for key, ratio in large.items() if ratio < 1 - share]
    print(f"64 MiB and more: {len(large)} bandwidths, {len(large) - len(outside)} within {given.within:g} %, {len(low)} lower by more, "
          f"ratios {min(large.values(), default=0):.4f} to {max(large.values(), default=0):.4f}")
    for (name, size), ratio in sorted(outside.items()):
        print(f"  {name} {size >> 20} MiB: {ratio:.4f}")
    sys.exit(1 if low or not large else 0)


if __name__ == "__main__":
    main()
