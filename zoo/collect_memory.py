#!/usr/bin/env python3
"""Memory of a `collect` of many nodes: it must grow neither with their number nor with the size of their bundles.

    zoo/collect_memory.py PROGRAM [NODES] [MIB]

A stand-in for ssh replays one real bundle of MIB MiB for each of NODES nodes. Prints the peak memory of the collecting
process for one node, for a quarter of them and for all. Exits with 1 if that is more than 20 MiB plus 2 MiB for each node
asked at once (64).
"""

import os
import re
import subprocess
import sys
import tempfile
import time

# The default of `--parallel`.
AT_ONCE = 64
STANDIN = '#!/bin/sh\nexec cat "{}"\n'


def peak_mib(program, folder, nodes):
    out = os.path.join(folder, f"got{nodes}")
    command = [program, "collect", "--unstable-ssh", os.path.join(folder, "ssh"), "-o", out]
    began = time.monotonic()
    child = subprocess.Popen([*command, "--hosts", f"node[001-{nodes:03}]"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    held = 0
    while child.poll() is None:
        with open(f"/proc/{child.pid}/status") as file:
            # In kB; a process that has just ended has none.
            held = max([held, *(int(line.split()[1]) for line in file if line.startswith("VmHWM"))])
        time.sleep(0.005)
    took = time.monotonic() - began
    names = os.listdir(out)
    whole = [name for name in names if re.fullmatch(r"node\d+\.tar\.zst", name)]
    total = sum(os.path.getsize(os.path.join(out, name)) for name in names)
    assert child.returncode == 0 and len(whole) == nodes, f"{len(whole)} of {nodes} bundles"
    for name in names:
        os.unlink(os.path.join(out, name))
    print(f"{nodes:4} nodes, {total / 2**20:7.0f} MiB: {held / 1024:6.1f} MiB held at most, {took:5.1f} s")
    return held


def main():
    program = os.path.abspath(sys.argv[1])
    nodes, mib = (int(word) for word in (*sys.argv[2:], *("64", "20")[len(sys.argv) - 2 :]))
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "noise.log")
        with open(log, "wb") as file:
            # Incompressible.
            file.write(os.urandom(mib << 20))
        bundle = os.path.join(folder, "bundle.tar.zst")
        bare = ["--no-logs", "--no-stacks", "--no-ras", "--pid", str(os.getpid())]
        subprocess.run([program, "collect", *bare, "-o", bundle, log], check=True, capture_output=True)
        print(f"a bundle of {os.path.getsize(bundle) / 2**20:.1f} MiB")
        with open(os.path.join(folder, "ssh"), "w") as file:
            file.write(STANDIN.format(bundle))
        os.chmod(os.path.join(folder, "ssh"), 0o755)
        peaks = [peak_mib(program, folder, n) for n in (1, max(nodes // 4, 1), nodes)]
        sys.exit(peaks[2] > (20 + 2 * min(nodes, AT_ONCE)) << 10)


main()
