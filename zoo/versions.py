#!/usr/bin/env python3
"""The plugin under real releases of NCCL: runs a short job of two ranks under each and compares the rings with what it did.

    zoo/versions.py --plugin target/release/libringleader_nccl.so --bin target/release/ringleader \\
        --reader target/release/examples/dump --out versions.json NCCL ...
    zoo/versions.py --self-test                              the checks themselves, with a stand-in for NCCL; no GPU

NCCL is a library (`libnccl.so.2`, or that in .xz), a folder that holds one, a folder of NCCL's source (`git archive
v2.23.4-1 | tar x -C DIR`), or an archive or a folder of several of these. Sources are built with the few kernels that the
job needs, for the GPUs of this machine; a copy of NCCL before 2.27 is patched for CUDA 13. The reader is the example `dump`
of the crate `ring`. Needs two GPUs, nvcc, g++ and make.

Each release runs over NVLink or PCIe (`direct`), where kernels report, and over TCP (`socket`), where proxies report.

- `all`: operations one by one, communicators, many in a row, graphs.
- `many`: communicators that come and go.
- `flood`: a graph that is recorded while the plugin follows nothing.
- `abort`: rank 1 never joins.
- `late`: rank 1 is late and is then killed; the rings are read meanwhile, and `ringleader diagnose` diagnoses them.
- `several`: both ranks in one process; the second one is late.
- `uneven`: groups of broadcasts, one from each rank; `uneven-off`: the same with `NCCL_ALLGATHERV_ENABLE=0`.

Nothing waits forever: every job has a deadline and is ended by pid, and `--budget` limits the whole run. Exits with 1 if the
rings lack or misreport anything that the release reports.
"""

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "versions"))

import build  # noqa: E402
import judge  # noqa: E402

# Time limit of a job in seconds.
DEADLINES = {"all": 60, "flood": 40, "abort": 15, "many": 100, "late": 50, "several": 40, "uneven": 30, "uneven-off": 30}
TRANSPORTS = {
    "direct": {},
    "socket": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"},
}
# On shared GPUs and drivers, connecting many channels takes a second.
FEW_CHANNELS = {"NCCL_MAX_NCHANNELS": "4", "NCCL_MAX_P2P_NCHANNELS": "2"}
# The lateness of rank 1: below 3 s it is not a stall.
LATE_SECONDS = 5
# Jobs that run within the node only.
DIRECT_ALONE = ("flood", "many", "several", "uneven", "uneven-off")
# Jobs that mostly wait hardly disturb each other.
AT_ONCE = {"late": 14}


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nccl", nargs="*", type=Path, metavar="NCCL")
    parser.add_argument("--plugin", type=Path, help="libringleader_nccl.so")
    parser.add_argument("--bin", type=Path, help="the program; without it nothing is diagnosed")
    parser.add_argument("--reader", type=Path, help="the example `dump`")
    parser.add_argument("--job", type=Path, help="`job.cc`, built; else it is built against the first NCCL that has a header")
    parser.add_argument("--out", type=Path, help="results as JSON; logs and odd rings beside it as .tar.xz")
    parser.add_argument("--only", nargs="*", metavar="VERSION")
    parser.add_argument("--transports", nargs="*", default=list(TRANSPORTS), choices=list(TRANSPORTS))
    parser.add_argument("--jobs", nargs="*", default=list(DEADLINES), choices=list(DEADLINES))
    parser.add_argument("--communicators", type=int, default=50)
    parser.add_argument("--parallel", type=int, default=4, help="jobs at once that use the GPUs")
    parser.add_argument("--build-seconds", type=float, default=150, help="for all builds together")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="what is not done by then is left out")
    parser.add_argument("--self-test", action="store_true")
    return parser.parse_args(arguments)


class Job:
    """One job of two ranks under one NCCL."""

    def __init__(self, options, version, library, transport, mode, folder, has_plugin=True):
        self.has_plugin = has_plugin
        self.options, self.version, self.library = options, version, library
        self.transport, self.mode, self.folder = transport, mode, folder
        self.rings = folder / "rings"
        self.rings.mkdir(parents=True)
        self.processes, self.checks, self.notes, self.seconds = [], {}, [], DEADLINES[mode]

    def start(self):
        for rank in range(2):
            # The caller's environment must not affect NCCL.
            environment = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "RINGLEADER_"))}
            plugin = self.options.plugin
            # NCCL 2.27.3 accepts names only.
            is_name = self.version == (2, 27, 3)
            environment |= {
                "LD_LIBRARY_PATH": f"{self.library}:{plugin.parent}" if is_name else str(self.library),
                "NCCL_PROFILER_PLUGIN": plugin.name if is_name else str(plugin),
                "RINGLEADER_RING_DIR": str(self.rings),
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV", "NCCL_DEBUG_FILE": str(self.folder / f"nccl-{rank}.log"),
                # Builds with few kernels contain the ring kernels. No multicast.
                "NCCL_ALGO": "RING", "NCCL_NVLS_ENABLE": "0",
                "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_RAS_ENABLE": "0",
                **TRANSPORTS[self.transport],
                **({"NCCL_ALLGATHERV_ENABLE": "0"} if self.mode == "uneven-off" else {}),
                **(FEW_CHANNELS if self.mode in ("all", "many") else {}),
            }  # fmt: skip
            if self.mode == "several":
                # A process that is not a rank has no rank number.
                for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
                    del environment[name]
            if not self.has_plugin:
                del environment["NCCL_PROFILER_PLUGIN"]
            with open(self.folder / f"out-{rank}.jsonl", "wb") as out, open(self.folder / f"err-{rank}.log", "wb") as err:
                communicators = self.options.communicators if self.mode == "many" else min(8, self.options.communicators)
                command = [self.options.job, rank, rank, self.folder, self.mode.removesuffix("-off"), communicators]
                process = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=err, start_new_session=True)  # fmt: skip
            self.processes.append(process)

    def lines(self):
        """The output of the ranks, without a truncated last line."""
        both = []
        for rank in range(2):
            both.append([])
            for line in (self.folder / f"out-{rank}.jsonl").read_text().splitlines():
                try:
                    both[rank].append(json.loads(line))
                except ValueError:
                    pass
        return both

    def ends_without_plugin(self):
        """Whether NCCL alone finishes the same job."""
        other = Job(self.options, self.version, self.library, self.transport, self.mode, self.folder / "without", has_plugin=False)
        try:
            other.start()
            other.wait(self.seconds, lambda: all(process.poll() is not None for process in other.processes))
            return all(process.poll() == 0 for process in other.processes)
        finally:
            other.end()

    def ring_files(self):
        """The ring of each rank that has one."""
        found = [next(self.rings.glob(f"ring-{process.pid}-*"), None) for process in self.processes]
        return found

    def read(self, freeze=None):
        """The rings as the reader sees them now; None for a rank without one."""
        states = []
        for path in self.ring_files():
            command = [self.options.reader, "--json", *(["--freeze", freeze] if freeze else []), path]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=20) if path else None
            if done and done.returncode != 0:
                self.notes.append(done.stderr.strip())
            states.append(json.loads(done.stdout) if done and done.returncode == 0 else None)
        return states

    def diagnose(self, folder):
        if not self.options.bin:
            return None
        command = [str(self.options.bin), "diagnose", "--format", "json", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        (folder.parent / f"{folder.name}.json").write_text(done.stdout)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"verdict": {"cause": f"exit {done.returncode}: {done.stderr.strip()[-200:]}", "culprits": []}}

    def wait(self, seconds, is_done):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_done():
            if any(process.poll() not in (None, 0) for process in self.processes):
                break
            time.sleep(0.02)
        return is_done()

    def several(self):
        checks, about = self.checks, (self.version, self.transport)
        if not self.wait(25, self.marks("ready")):
            checks["ends"] = judge.finished(self.lines()[:1], [self.processes[0].poll()])
            return
        time.sleep(LATE_SECONDS)
        frozen = self.folder / "late"
        frozen.mkdir()
        ring = self.read(frozen)[0]
        checks["loaded"] = judge.loaded([ring], self.version, [None])
        if ring is None:
            return
        checks["late"] = judge.waiting(judge.parted(ring), 81, *about)
        # The size follows from the visible ranks only if each has its own process.
        knows_size = judge.interface_of(self.version) >= 4
        told = self.diagnose(frozen)
        checks["late blamed"] = judge.blamed(told, knows_size) if self.options.bin else "-: not asked"
        (self.folder / "enter").touch()
        self.wait(8, lambda: all(process.poll() is not None for process in self.processes))
        lines = self.lines()[0]
        checks["ends"] = judge.finished([lines], [self.processes[0].poll()])
        self.end()
        (ring, _) = self.read()
        (self.folder / "rings.json").write_text(json.dumps([ring]))
        rings, lines = judge.parted(ring), [judge.of_rank(lines, rank) for rank in range(2)]
        each = list(zip(rings, lines))
        checks["calls"] = both(judge.calls(mine, words, *about) for mine, words in each)
        checks["communicators"] = judge.communicators(rings, lines, self.version)
        checks["ended"] = both(judge.ended(mine, words, *about) for mine, words in each)

    def marks(self, name):
        return lambda: all((self.folder / f"{name}-{rank}").exists() for rank in range(2))

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                self.notes.append(f"process {process.pid} does not die")

    def look_at_a_hang(self):
        """Describes a hang: the threads' stacks, as the program collects them."""
        for process in self.processes:
            if process.poll() is None and self.options.bin:
                target = self.folder / f"hang-{process.pid}.tar.zst"
                command = [str(self.options.bin), "collect", "--pid", str(process.pid), "-o", str(target)]
                try:
                    subprocess.run(command, capture_output=True, timeout=15)
                except subprocess.TimeoutExpired:
                    pass
                return

    def run(self):
        try:
            self.start()
            if self.mode == "late":
                self.late()
            elif self.mode == "several":
                self.several()
            else:
                self.whole()
        except Exception as error:  # a failing reader is a finding and affects only this job
            self.checks["runs"] = f"no: {type(error).__name__}: {error}"
        finally:
            self.end()
        return self.checks

    def whole(self):
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            if any(process.poll() not in (None, 0) for process in self.processes):
                deadline = min(deadline, time.monotonic() + 2)  # the other does not wait
            time.sleep(0.02)
        codes = [process.poll() for process in self.processes]
        if None in codes:
            self.look_at_a_hang()
        rings, lines = self.read(), self.lines()
        self.end()
        (self.folder / "rings.json").write_text(json.dumps(rings))
        checks = self.checks
        checks["loaded"] = judge.loaded(rings, self.version)
        checks["ends"] = judge.finished(lines, codes)
        if checks["ends"] != "ok" and not self.ends_without_plugin():
            checks["ends"] = f"-: nor without the plugin:{checks['ends'].removeprefix('no:')}"
            return
        if None in rings:
            return
        each = list(zip(rings, lines))
        if self.mode == "abort":
            checks["abort"] = judge.aborted(rings, 71)
            return
        checks["calls"] = both(judge.calls(ring, mine, self.version, self.transport) for ring, mine in each)
        if self.mode in ("all", "many"):
            checks["communicators"] = judge.communicators(rings, lines, self.version)
        if self.mode in ("all", "uneven", "uneven-off"):
            # Without such launches NCCL reports as earlier releases do.
            like = min(self.version, judge.BEFORE_LAUNCHES) if self.mode == "uneven-off" else self.version
            checks["ended"] = both(judge.ended(ring, mine, like, self.transport) for ring, mine in each)

    def late(self):
        checks, about = self.checks, (self.version, self.transport)
        if not self.wait(25, self.marks("ready")):
            checks["ends"] = judge.finished(self.lines(), [process.poll() for process in self.processes])
            checks["late"] = "no: the ranks did not get ready"
            return
        time.sleep(LATE_SECONDS)
        frozen = [self.folder / "late", self.folder / "killed"]
        for folder in frozen:
            folder.mkdir()
        rings = self.read(frozen[0])
        checks["loaded"] = judge.loaded(rings, self.version)
        if None in rings:
            return
        checks["late"] = both([judge.waiting(rings, 81, *about), judge.held(rings, [True, True])])
        checks["late blamed"] = judge.blamed(self.diagnose(frozen[0])) if self.options.bin else "-: not asked"
        (self.folder / "enter").touch()
        if not self.wait(8, self.marks("over")):
            checks["over"] = "no: it did not end when rank 1 entered"
            return
        time.sleep(0.5)
        checks["over"] = judge.over(self.read(), 81, *about)
        self.processes[1].send_signal(signal.SIGKILL)
        self.processes[1].wait(10)
        time.sleep(LATE_SECONDS)
        rings = self.read(frozen[1])
        checks["killed"] = both([judge.waiting(rings, 91, *about), judge.held(rings, [True, False])])
        checks["killed blamed"] = judge.blamed(self.diagnose(frozen[1])) if self.options.bin else "-: not asked"


def both(verdicts):
    """The worst of several results."""
    verdicts = list(verdicts)
    return next((v for v in verdicts if v.startswith("no")), next((v for v in verdicts if v.startswith("-")), verdicts[0]))


class Runner:
    def __init__(self, options, scratch, say=lambda line: print(line, flush=True)):
        self.options, self.scratch, self.say = options, scratch, say
        self.begin = time.monotonic()
        self.results, self.jobs, self.lock = {}, [], threading.Lock()

    def left(self):
        return self.options.budget - (time.monotonic() - self.begin) if self.options.budget else float("inf")

    def one(self, version, library, transport, mode):
        name = f"{judge_name(version)}-{transport}-{mode}"
        seconds = min(DEADLINES[mode], self.left() - 10)
        if seconds < min(15, DEADLINES[mode]):
            checks = {"runs": "-: no time was left"}
        else:
            job = Job(self.options, version, library, transport, mode, self.scratch / name)
            job.seconds = seconds
            with self.lock:
                self.jobs.append(job)
            began = time.monotonic()
            checks = job.run()
            if self.left() < 10 and seconds < DEADLINES[mode]:
                checks = {"runs": "-: no time was left"}
            wrong = "; ".join(f"{what} {how}" for what, how in checks.items() if how.startswith("no"))
            self.say(f"{time.monotonic() - self.begin:6.1f} {name}: {time.monotonic() - began:.1f} s, {wrong or 'ok'}")
        with self.lock:
            self.results.setdefault(version, {}).setdefault(transport, {})[mode] = checks

    def run(self, libraries):
        for modes, parallel in ((lambda m: m in AT_ONCE, AT_ONCE["late"]), (lambda m: m not in AT_ONCE, self.options.parallel)):
            with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
                # If time runs out, every version has had its turn with the earlier jobs.
                for mode in filter(modes, self.options.jobs):
                    for transport in self.options.transports:
                        for version, library in sorted(libraries.items(), reverse=True):
                            if mode not in DIRECT_ALONE or transport == "direct":
                                pool.submit(self.one, version, library, transport, mode)

    def table(self, failed_builds):
        """Markdown: one row per release and transport, one column per check."""
        columns = ["runs", "loaded", "ends", "calls", "communicators", "ended", "late", "late blamed", "over", "killed", "killed blamed", "abort"]
        rows = ["| NCCL | interface | transport | " + " | ".join(columns) + " |", "|" + " --- |" * (len(columns) + 3)]
        notes = {}
        for version, transports in sorted(self.results.items()):
            for transport, modes in transports.items():
                cells = []
                for column in columns:
                    found = [(mode, checks[column]) for mode, checks in modes.items() if column in checks]
                    for mode, how in found:
                        if how != "ok":
                            notes.setdefault(f"{transport} {mode}, {column}: {how}", []).append(judge_name(version))
                    cells.append(both([how for _, how in found] or ["-"])[:2].rstrip(":"))
                rows.append(f"| {judge_name(version)} | {judge.interface_of(version)} | {transport} | {' | '.join(cells)} |")
        notes = [f"{note} ({', '.join(versions)})" for note, versions in notes.items()]
        rows += ["", *sorted(notes), *[f"{name}: not built: {why}" for name, why in failed_builds.items()]]
        return "\n".join(rows)

    def has_failed(self):
        return any(how.startswith("no") for transports in self.results.values() for modes in transports.values()
                   for checks in modes.values() for how in checks.values())  # fmt: skip

    def keep(self, target):
        """Logs and diagnoses of all jobs, and the rings of suspicious ones."""
        with tarfile.open(target, "w:xz", preset=1) as archive:
            for path in sorted(self.scratch.glob("build-*.log")):
                archive.add(path, path.name)
            for job in self.jobs:
                is_odd = any(how.startswith("no") for how in job.checks.values())
                for path in sorted(job.folder.rglob("*")):
                    is_wanted = path.parent != job.rings or is_odd and job.mode != "late"
                    if path.is_file() and is_wanted and path.stat().st_size < 8 << 20:
                        archive.add(path, str(path.relative_to(self.scratch)))


def judge_name(version):
    return ".".join(map(str, version))


def main(arguments):
    options = options_of(arguments)
    if options.self_test:
        import stand_in

        return stand_in.self_test(options)
    for name in ("plugin", "reader"):
        if not getattr(options, name):
            sys.exit(f"--{name} is missing")
    for name in ("plugin", "reader", "bin", "job"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).resolve())
    scratch = Path(tempfile.mkdtemp(prefix="versions-"))
    runner = Runner(options, scratch)
    seconds = min(options.build_seconds, runner.left() / 2)
    libraries, header, failed = build.all_of(options.nccl, scratch, seconds, options.only)
    print(f"{time.monotonic() - runner.begin:6.1f} {len(libraries)} releases, {len(failed)} not built", flush=True)
    if libraries and not options.job:
        options.job = build.job(scratch, header, next(iter(libraries.values())))
    runner.run(libraries)
    table = runner.table(failed)
    print(table)
    if options.out:
        results = [{"version": judge_name(version), "interface": judge.interface_of(version), "transport": transport, "jobs": modes}
                   for version, transports in sorted(runner.results.items()) for transport, modes in transports.items()]  # fmt: skip
        options.out.write_text(json.dumps({"results": results, "not_built": failed}, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(table + "\n")
        runner.keep(options.out.with_suffix(".tar.xz"))
    return 1 if runner.has_failed() or failed or not runner.results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
