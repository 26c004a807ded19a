#!/usr/bin/env python3
"""The fault zoo, live: plants one fault after another in a small training job, runs `ringleader watch` beside it, and scores
its answer: rank, cause, seconds, and silence while the job is healthy.

    zoo/live.py --bin target/release/ringleader --plugin target/release/libringleader_nccl.so --record DIR
    zoo/live.py --only skip kill slow-gpu --places 1        a subset
    zoo/live.py --no-watch                                  the faults alone: how each ends, where each rank is
    zoo/live.py --self-test                                 the runner itself, with a stand-in for the watcher; no GPU
    zoo/live.py --list

It also asks NCCL's RAS and PyTorch's Flight Recorder analyzer about the same stalled run. Needs Linux, PyTorch with NCCL and
a GPU. Nodes (network namespaces), cgroups and the stuck mount need root; without it they are skipped and reported as such.
If there are more ranks than GPUs, ranks share GPUs: NCCL then treats each rank as a separate host and uses sockets.

It ends everything it starts, by pid, and changes no setting of a GPU or of the machine.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import faults  # noqa: E402
from runs import Run  # noqa: E402
from server import Server  # noqa: E402


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/ringleader", help="the program, or any that speaks like its watch")
    parser.add_argument("--plugin", help="libringleader_nccl.so; without it the watcher has RAS and stacks alone")
    parser.add_argument("--no-watch", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="faults, `healthy`, or `healthy:NAME`")
    parser.add_argument("--places", type=int, default=3, help="random places (rank, step, kind of job) for each fault")
    parser.add_argument("--first-place", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=4, help="jobs at once")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="no run is started after so long; the rest is named")
    parser.add_argument("--record", metavar="DIR", help="keeps results.json and, of each run, events, log, truth, the others' answers")
    parser.add_argument("--resume", metavar="FILE", help="results of an earlier call: what is in them is not run again")
    parser.add_argument("--no-others", action="store_true", help="RAS and Flight Recorder are not asked")
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"], help="gloo: without GPUs, to try the jobs")
    parser.add_argument("--watch-arguments", default="", help="more arguments for the watcher")
    parser.add_argument("--start-arguments", default="--unstable-first-floor 8", help="the same, for faults before the first step: "
                        "watch allows ten minutes where no rhythm has shown yet, the zoo has not as many")  # fmt: skip
    parser.add_argument("--bundles", action="store_true", help="with --record: keeps the watcher's bundles too")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args(arguments)
    # For the self-test: a job without PyTorch, with other settings.
    options.kind, options.preload, options.settings = None, True, {}
    return options


def n_gpus():
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30).stdout
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in found.splitlines())


def possible():
    """Requirements of faults that this machine does not meet, with the reason."""
    lacking = {}
    if os.geteuid() != 0:
        lacking["root"] = "needs root"
    import netns

    why = "needs root" if os.geteuid() != 0 else netns.possible()
    if why:
        lacking["netns"] = why
    try:
        controllers = Path("/sys/fs/cgroup/cgroup.controllers").read_text().split()
        if not os.access("/sys/fs/cgroup", os.W_OK):
            lacking["cgroup2"] = "cgroups cannot be made here"
        elif "memory" not in Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split():
            lacking["cgroup2-memory"] = f"no memory controller in cgroup v2 (there are: {' '.join(controllers) or 'none'})"
    except OSError:
        lacking["cgroup2"] = "no cgroup v2"
    return lacking


def plan(options):
    """All runs: each fault at random places, and the healthy jobs. The same seed gives the same places."""
    runs = []
    for fault in faults.FAULTS:
        for place in range(options.first_place, options.first_place + options.places):
            runs.append((f"{fault.name}/{place}", fault, place))
    for healthy in faults.HEALTHY:
        runs.append((f"healthy:{healthy.name}/0", healthy, 0))

    def wanted(name):
        name = name.split("/")[0]
        return not options.only or name in options.only or ("healthy" in options.only and name.startswith("healthy:"))

    unknown = set(options.only) - {name.split("/")[0] for name, _, _ in runs} - {"healthy"}
    if unknown:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}; see --list")
    chosen = [Run(options, name, what, place) for name, what, place in runs if wanted(name)]
    # Mix the kinds over time; longest first, so that no long run is left at the end.
    random.Random(options.seed).shuffle(chosen)
    chosen.sort(key=lambda run: -round(run.longest() / 20))
    return chosen


class Zoo:
    def __init__(self, options):
        self.options = options
        self.gpus = options.gpus if hasattr(options, "gpus") else (n_gpus() if options.backend == "nccl" else 0)
        self.lacking = possible()
        self.base = Path(tempfile.mkdtemp(prefix="zoo-", dir=options.record if options.record else None))
        self.results, self.not_run = [], []
        self.lock = threading.Lock()
        self.begin = time.monotonic()
        self.n_started = 0
        self.server, self.stop = None, False

    def do(self, runs):
        done = {}
        if self.options.resume and os.path.exists(self.options.resume):
            earlier = json.loads(Path(self.options.resume).read_text())
            done = {result["name"]: result for result in earlier["runs"]}
            self.results += done.values()
        self.server = Server(self.options.preload)
        awake = self.wake_gpus()
        try:
            with concurrent.futures.ThreadPoolExecutor(self.options.parallel) as pool:
                try:
                    for future in [pool.submit(self.one, run) for run in runs if run.name not in done]:
                        future.result()
                finally:
                    # Interrupted: running jobs end properly, and no new one starts.
                    self.stop = True
        finally:
            self.server.end()
            if awake:
                awake.kill()
                awake.wait()
            if not self.options.record:
                shutil.rmtree(self.base, ignore_errors=True)

    def wake_gpus(self):
        """An unused driver releases its GPUs and takes many seconds to start them again; keeps that out of the measurement."""
        if not self.gpus or not self.options.preload:
            return None
        code = "import sys, torch; held = [torch.zeros(1, device=i) for i in range(torch.cuda.device_count())]; print(flush=True); "
        # It ends with the runner in any case.
        command = [sys.executable, "-c", code + "sys.stdin.read()"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.readline()
        return process

    def one(self, run):
        missing = [self.lacking[need] for need in getattr(run.what, "needs", ()) if need in self.lacking]
        if missing:
            self.keep({**run.place_of(), "skipped": missing[0]})
            return
        if self.stop or (self.options.budget and time.monotonic() - self.begin > self.options.budget):
            with self.lock:
                self.not_run.append(run.name)
            return
        with self.lock:
            self.n_started += 1
            number = self.n_started
        try:
            result = run.do(self, number)
        except Exception as error:  # A run that cannot be made must not affect the others.
            result = {**run.place_of(), "failed": f"{type(error).__name__}: {error}"[:300]}
        self.keep(result)

    def keep(self, result):
        with self.lock:
            self.results.append(result)
            print(line_of(result), flush=True)
            if self.options.record:
                self.write()

    def write(self):
        path = Path(self.options.record) / "results.json"
        body = {"machine": self.machine(), "seed": self.options.seed, "ranks": self.options.ranks, "parallel": self.options.parallel}
        body.update({"not_run": self.not_run, "runs": sorted(self.results, key=lambda result: result["name"])})
        part = path.with_suffix(".part")
        part.write_text(json.dumps(body, indent=1) + "\n")
        part.replace(path)

    def machine(self):
        if not hasattr(self, "said"):
            self.said = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "gpus": self.gpus, "cpus": os.cpu_count()}
            self.said["kernel"] = os.uname().release
            ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
            if self.gpus:
                names = subprocess.run(ask, capture_output=True, text=True).stdout.splitlines()
                self.said["gpu"], _, self.said["driver"] = (names or [", "])[0].partition(", ")
            if self.options.preload:
                versions = "import torch; print(torch.__version__, '.'.join(map(str, torch.cuda.nccl.version())))"
                got = subprocess.run([sys.executable, "-c", versions], capture_output=True, text=True).stdout.split()
                self.said["torch"], self.said["nccl"] = got if len(got) == 2 else (None, None)
            if not self.options.no_watch:
                said = subprocess.run([self.options.bin, "--version"], capture_output=True, text=True)
                self.said["ringleader"] = said.stdout.strip() if said.returncode == 0 else None
        return self.said


def line_of(result):
    name = f"{result['name']:22}"
    if "skipped" in result:
        return f"{'skipped':8} {name} {result['skipped']}"
    if "failed" in result:
        return f"{'FAILED':8} {name} {result['failed']}"
    if "look" in result:
        return f"{'looked':8} {name} {result['kind']:8} rank {result['rank']} of {result['world']}: {result['look']}"
    mark = "right" if result["right"] else "WRONG"
    if result["group"] == "healthy":
        return f"{mark:8} {name} {result['answer'] or 'quiet'}"
    answer = result["answer"] or {}
    said = f"{answer.get('cause') or 'nothing'} of {answer.get('ranks')}"
    after = f"stall {seconds(answer.get('stall_s'))}, verdict {seconds(answer.get('verdict_s'))}"
    want = "" if result["right"] else f"; want {result['want']['causes'][0]} of {result['want']['ranks']}"
    early = "; ALARM BEFORE THE FAULT" if result["early_alarms"] else ""
    others = f" | FR: {result['fr']['says']} | RAS: {result['ras']['says']}" if result.get("fr") else ""
    return f"{mark:8} {name} {said}, {after}{want}{early}{others}"


def seconds(value):
    return "-" if value is None else f"{value:.1f} s"


def totals(results):
    """The totals of the scoreboard."""
    scored = [result for result in results if "right" in result and result["group"] != "healthy"]
    healthy = [result for result in results if "right" in result and result["group"] == "healthy"]
    return {
        "runs": len(scored),
        "faults": len({result["fault"] for result in scored}),
        "right": sum(result["right"] for result in scored),
        "right_cause": sum(result["right_cause"] for result in scored),
        "right_rank": sum(result["right_rank"] for result in scored if result["right_rank"] is not None),
        "rank_asked": sum(result["right_rank"] is not None for result in scored),
        "early_alarms": sum(bool(result["early_alarms"]) for result in scored),
        "healthy": len(healthy),
        "healthy_quiet": sum(result["right"] for result in healthy),
        "skipped": sum("skipped" in result for result in results),
        "failed": sum("failed" in result for result in results),
    }


def main(arguments=None):
    options = options_of(arguments)
    if options.self_test:
        import selftest

        sys.exit(selftest.main())
    if options.list:
        for fault in faults.FAULTS:
            print(f"{fault.name:16} {fault.group:8} {fault.cause:26} {fault.says}")
        for healthy in faults.HEALTHY:
            print(f"healthy:{healthy.name:17} {'none':26} {healthy.says}")
        return
    options.bin = os.path.abspath(options.bin)
    options.plugin = os.path.abspath(options.plugin) if options.plugin else None
    for path in (None if options.no_watch else options.bin, options.plugin):
        if path and not os.path.exists(path):
            sys.exit(f"{path}: no such file")
    if options.record:
        options.record = os.path.abspath(options.record)
        os.makedirs(options.record, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    zoo = Zoo(options)
    zoo.do(plan(options))
    if zoo.not_run:
        print(f"not run, the time was up: {' '.join(sorted(zoo.not_run))}")
    if options.record:
        zoo.write()
    if not options.no_watch:
        print(json.dumps(totals(zoo.results)))


if __name__ == "__main__":
    main()
