#!/usr/bin/env python3
"""NCCL's Inspector and ringleader in one job, on two GPUs or more: does each see what it sees alone?

    zoo/second.py --ringleader target/release/ringleader --plugin target/release/libringleader_nccl.so --source NCCL/plugins/profiler

All ranks call 300 collectives, then rank 1 (`--away`) stays away and all are killed. Inspector is built from NCCL's public source, or
`--inspector` names it. Printed for each of the three ways: how many collectives Inspector has written, whether `diagnose` of the rings
names the rank, and the time of a call, which says nothing with `--at-once`: then the three ways run at the same time. Needs torch
and g++.
"""

import argparse
import glob
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "overhead"))
from overhead import build_public_plugins  # noqa: E402

# NCCL's own lines also say "use".
TIME = re.compile(r"^rank \d+: ([0-9.]+ us)$", re.M)
JOB = """
import os, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
x = torch.ones(1 << 18, device="cuda")
for step in range(310):
    if step == 10:
        torch.cuda.synchronize()
        start = time.perf_counter()
    dist.all_reduce(x)
    x.fill_(1)
    time.sleep(0.004)
    torch.cuda.synchronize()
print("rank %d: %.1f us" % (rank, (time.perf_counter() - start) / 300 * 1e6), flush=True)
time.sleep(1.5)
if rank == int(os.environ["ZOO_AWAY"]):
    time.sleep(100)
dist.all_reduce(x)
torch.cuda.synchronize()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def job(folder, environment, n_ranks):
    """Runs all ranks until they wait for the one that is away, and kills them; answers with the times of a call."""
    (folder / "job.py").write_text(JOB)
    ranks = []
    port = free_port()
    for rank in range(n_ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with open(folder / f"rank{rank}.log", "w") as log:
            ranks.append(subprocess.Popen([sys.executable, "job.py"], cwd=folder, env={**os.environ, **environment, **own},
                                          stdout=log, stderr=log))
    until = time.monotonic() + 60
    texts = []
    while time.monotonic() < until:
        texts = [(folder / f"rank{rank}.log").read_text() for rank in range(n_ranks)]
        if all(TIME.search(text) for text in texts) or any(rank.poll() is not None for rank in ranks):
            time.sleep(6)
            break
        time.sleep(0.5)
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(signal.SIGKILL)
        rank.wait()
    return [found for text in texts for found in TIME.findall(text)]


def told(given, top, name, environment):
    """What Inspector and `diagnose` say about one job."""
    folder = top / name.replace(" ", "-")
    rings, dumps = folder / "rings", folder / "inspector"
    rings.mkdir(parents=True)
    times = job(folder, {
        **environment,
        "RINGLEADER_RING_DIR": str(rings),
        "NCCL_INSPECTOR_ENABLE": "1",
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "1000",
        "NCCL_INSPECTOR_DUMP_DIR": str(dumps),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT",
        "ZOO_AWAY": str(given.away),
    }, given.ranks)
    written = [sum('"coll_perf"' in line for line in open(path, errors="replace"))
               for path in sorted(glob.glob(f"{dumps}/**/*", recursive=True)) if os.path.isfile(path)]
    said = "no rings"
    if list(rings.iterdir()):
        out = subprocess.run([given.ringleader, "diagnose", "--format", "json", "--fail-on", "never", str(rings)],
                             capture_output=True, text=True).stdout
        verdict = json.loads(out)["verdict"]
        said = f"{verdict['cause']} {[culprit.get('rank') for culprit in verdict['culprits']]} {verdict['confidence']}"
    lines = [f"{name}: Inspector wrote {written} collectives; diagnose: {said}; a call {times}"]
    for line in (folder / "rank0.log").read_text(errors="replace").splitlines():
        if "PROFILER/Plugin" in line or "Error" in line:
            lines.append("    " + line[-160:])
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--source", help="folder of NCCL's profiler plugins")
    parser.add_argument("--inspector", help="the library, if it is built")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--away", type=int, default=1)
    parser.add_argument("--at-once", action="store_true")
    given = parser.parse_args()
    given.ringleader, plugin = os.path.abspath(given.ringleader), os.path.abspath(given.plugin)
    given.inspector = given.inspector and os.path.abspath(given.inspector)
    if not given.inspector and not given.source:
        parser.error("--source or --inspector is needed")
    with tempfile.TemporaryDirectory() as made:
        top = pathlib.Path(made)
        inspector = given.inspector or str(build_public_plugins(top, given.source).get("inspector", ""))
        if not os.path.exists(inspector):
            sys.exit("Inspector does not build here")
        ways = {
            "Inspector alone": {"NCCL_PROFILER_PLUGIN": inspector},
            "ringleader alone": {"NCCL_PROFILER_PLUGIN": plugin},
            "both": {"NCCL_PROFILER_PLUGIN": plugin, "RINGLEADER_PLUGIN_NEXT": inspector},
        }
        with ThreadPoolExecutor(len(ways) if given.at_once else 1) as lanes:
            for text in lanes.map(lambda way: told(given, top, *way), ways.items()):
                print(text, flush=True)


if __name__ == "__main__":
    main()
