#!/usr/bin/env python3
"""The cost of watching: all_reduce of 8 B to 1 GB and a DDP step, with no plugin, ours, NCCL's own profilers and NCCL's log.

    zoo/overhead/overhead.py --plugin target/release/libringleader_nccl.so --nccl-source NCCL/ext-profiler --out overhead.json
    zoo/overhead/overhead.py --plugin old=a.so --plugin new=b.so --small --rounds 30

Needs two GPUs or more, nvcc, g++, and PyTorch with its NCCL (2.28 or later: interface 5). `--nccl-source` is the folder
`ext-profiler` (later `plugins/profiler`) of NCCL's public source. Inspector and the example plugin are built from it in a
temporary folder, for DDP and for `--apart`; without it they are skipped.

Small operations differ by 30 % from process to process, with cores and memory, so variants are not compared between
processes. `switch.cc` loads all of them into one process, and every round runs all of them in a new order, each for some
milliseconds. `none` and `again` ask NCCL for no event. A number is the median over rounds of a variant's time against the
mean of these two in the same round, with a 95 % bootstrap interval over the rounds. Several processes run one after another;
the spread of `none` between them is the noise from run to run that a user would see. `--apart N` runs ours, NCCL's own
plugins and its log in separate processes, N rounds of them.
"""

import argparse
import importlib.metadata
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = [8, 64, 512, 4096, 32768, 262144, 2097152, 16777216, 134217728, 1073741824]
SMALL = 32768
BASES = ("none", "again")
RESAMPLES = 1000


def iterations(size):
    """Enough for batches of about 12 ms."""
    return max(3, min(2000, int(12000 / (6 + size / 330e3))))


def nccl_folder():
    import importlib.util

    for name in ("nvidia.nccl",):
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
    sys.exit("NCCL of PyTorch's packages was not found (nvidia.nccl)")


def build(folder, nccl):
    """The bench and the switch."""
    library = next((nccl / "lib").glob("libnccl.so*"))
    program, switch = folder / "ops", folder / "libswitch.so"
    subprocess.run(["g++", "-O2", "-fPIC", "-shared", str(HERE / "switch.cc"), "-o", str(switch), "-ldl"], check=True,
                   timeout=90)
    subprocess.run(
        ["nvcc", "-O2", "-std=c++17", str(HERE / "ops.cu"), "-o", str(program), f"-I{nccl / 'include'}",
         f"-L{library.parent}", f"-l:{library.name}", "-ldl", "-Xlinker", f"-rpath={library.parent}"],
        check=True,
        timeout=120,
    )
    return program, switch


def build_public_plugins(folder, source):
    """NCCL's Inspector and example plugin, from their public source."""
    built = {}
    copy = folder / "profiler"
    shutil.copytree(source, copy)
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for name, directory, more in (
        ("inspector", "inspector", [f"-L{cuda}/lib64", "-lcudart", "-ldl", "-lpthread"]),
        ("example", "example", ["-ldl", "-lpthread"]),
    ):
        here = copy / directory
        if not here.is_dir():
            continue
        version = here / "version.cc"
        if directory == "inspector" and not version.exists():
            version.write_text('#include "version.h"\nconst char* get_git_version_info() { return "unknown"; }\n')
        target = folder / f"libnccl-profiler-{name}.so"
        command = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", f"-I{cuda}/include", "-I.", "-Inccl", "-o", str(target),
                   *[str(path) for path in sorted(here.glob("*.cc"))], *more]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True)
        if done.returncode == 0:
            built[name] = target
        else:
            print(f"{name} does not build here: {done.stderr[-2000:]}", file=sys.stderr)
    return built


def made(options, folder, nccl):
    """The bench, the switch and NCCL's own plugins; built, unless they are there."""
    program, switch = folder / "ops", folder / "libswitch.so"
    built = {name: folder / f"libnccl-profiler-{name}.so" for name in ("inspector", "example")}
    if program.exists() and switch.exists():
        return program, switch, {name: path for name, path in built.items() if path.exists()}
    folder.mkdir(parents=True, exist_ok=True)
    built = build_public_plugins(folder, options.nccl_source) if options.nccl_source else {}
    return *build(folder, nccl), built


def variants(folder, options, built):
    """Libraries by name, with the variables that each needs at its start."""
    libraries = {}
    for given in options.plugin:
        name, _, path = given.rpartition("=")
        name = name or "ringleader"
        rings = folder / f"rings-{name}"
        rings.mkdir(exist_ok=True)
        libraries[name] = (Path(path).resolve(), {"RINGLEADER_RING_DIR": str(rings)})
    if "inspector" in built:
        libraries["inspector"] = (built["inspector"], {
            "NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500000",
            "NCCL_INSPECTOR_DUMP_DIR": str(folder / "inspector")})
    if "example" in built:
        libraries["example"] = (built["example"], {"NCCL_PROFILE_DUMP_FILE": str(folder / "example"),
                                                   "NCCL_PROFILE_EVENT_MASK": "71"})
    return libraries


def numbers(text):
    """A list of processors as the kernel prints it: 0-3,8."""
    found = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def version(package):
    """The version of the installed package with this name prefix."""
    found = [one for one in importlib.metadata.distributions() if (one.metadata["Name"] or "").startswith(package)]
    return min(found, key=lambda one: len(one.metadata["Name"])).version if found else ""


def cores(ranks):
    """Cores for each rank, near its GPU; one thread per core if that leaves enough."""
    allowed = os.sched_getaffinity(0)
    query = subprocess.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"], capture_output=True, text=True)
    buses = query.stdout.split()
    near = []
    for rank in range(ranks):
        mine = set()
        if rank < len(buses):
            domain, _, rest = buses[rank].lower().partition(":")
            try:
                mine = numbers((Path("/sys/bus/pci/devices") / f"{domain[-4:]}:{rest}" / "local_cpulist").read_text())
            except (OSError, ValueError):
                pass
        near.append(tuple(sorted(mine & allowed or allowed)))
    shares = []
    for rank in range(ranks):
        alike = [other for other in range(ranks) if near[other] == near[rank]]
        own, seen = [], set()
        for core in near[rank]:
            try:
                siblings = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text().strip()
            except OSError:
                siblings = str(core)
            if siblings not in seen:
                seen.add(siblings)
                own.append(core)
        own = own if len(own) >= 4 * len(alike) else list(near[rank])
        share = max(1, len(own) // len(alike))
        at = alike.index(rank) * share
        shares.append(own[at:at + share] or own)
    return shares


def run_all(commands, environment, limit_s, shares):
    """Runs the ranks: returns the output of rank 0 and whether all succeeded. Output before a time limit or a fault
    counts. The launching thread gets its own core, NCCL's threads the others."""
    processes = []
    said = tempfile.TemporaryFile("w+")
    for rank, command in enumerate(commands):
        mine = shares[rank]
        env = {**os.environ, **environment, "NCCL_NVLS_ENABLE": "0", "RANK": str(rank), "LOCAL_RANK": str(rank),
               "WORLD_SIZE": str(len(commands)), "OPS_CORE": str(mine[0])}
        others = mine[1:] if len(mine) > 2 else mine
        processes.append(subprocess.Popen(
            command, env=env, stdout=said if rank == 0 else subprocess.DEVNULL,
            preexec_fn=lambda others=others: os.sched_setaffinity(0, others),
        ))
    until = time.monotonic() + limit_s
    while any(process.poll() is None for process in processes):
        if time.monotonic() > until or any(process.poll() for process in processes):
            for process in processes:
                process.kill()
        time.sleep(0.05)
    codes = [process.wait() for process in processes]
    if any(codes):
        print(f"exit codes {codes}", file=sys.stderr, flush=True)
    said.seek(0)
    with said:
        return said.read(), not any(codes)


def ops(options, folder, program, environment, turn, names, rounds, limit_s, sizes):
    """Times by measurement and variant, one number per round; and whether all succeeded."""
    sizes = [f"{size}:{iterations(size)}" for size in sizes]
    commands = [
        [str(program), str(rank), str(options.ranks), str(rank), str(folder / f"id-{turn}"), str(rounds), str(turn), *sizes]
        for rank in range(options.ranks)
    ]
    output, is_well = run_all(commands, environment, limit_s, options.shares)
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) != 3 + rounds or words[1] not in ("throughput", "latency"):
            continue  # NCCL's own output, or a truncated line
        found.setdefault(f"{words[1]} {words[0]}", {})[names[int(words[2])]] = [float(time) for time in words[3:]]
    return found, is_well


def ddp(options, environment, names, rounds, limit_s):
    environment = {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + random.randrange(20000))}
    command = [sys.executable, str(HERE / "ddp_step.py"), "--rounds", str(rounds)]
    output, is_well = run_all([command] * options.ranks, environment, limit_s, options.shares)
    found = {}
    for line in output.splitlines():
        words = line.split()
        if words and words[0] == "ddp":
            found[names[int(words[1])]] = [float(time) for time in words[2:]]
    return ({"ddp step": found} if found else {}), is_well


def quartile(times):
    return sorted(times)[len(times) // 4]


def interval(processes):
    """The 95 % bootstrap interval of the median, resampling the rounds of each process."""
    medians = sorted(
        statistics.median(value for rounds in processes for value in random.choices(rounds, k=len(rounds)))
        for _ in range(RESAMPLES)
    )
    return medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40]


def against_none(runs, variant):
    """Per process: a variant's times relative to the mean of both runs without a plugin in the same round."""
    found = []
    for run in runs:
        if variant not in run or not all(base in run for base in BASES):
            continue
        base = run["none"] if variant == "again" else [(a + b) / 2 for a, b in zip(run["none"], run["again"])]
        found.append([value / reference - 1 for value, reference in zip(run[variant], base)])
    return found


def summary(runs):
    """The results of one measurement."""
    bases = [[value for base in BASES for value in run.get(base, [])] for run in runs]
    bases = [times for times in bases if times]
    if not bases:
        return None
    medians = [statistics.median(times) for times in bases]
    found = {"none": statistics.median(medians), "variants": {},
             "run_to_run": (max(medians) - min(medians)) / 2 / statistics.median(medians)}
    for variant in dict.fromkeys(name for run in runs for name in run if name != "none"):
        ratios = against_none(runs, variant)
        if not ratios:
            continue
        low, high = interval(ratios)
        # The quartile and the minimum of each process, then the median of the processes.
        lower = [quartile(run[variant]) / quartile(base) - 1 for run, base in zip(runs, bases) if variant in run]
        least = [min(run[variant]) / min(base) - 1 for run, base in zip(runs, bases) if variant in run]
        found["variants"][variant] = {
            "median": statistics.median(value for rounds in ratios for value in rounds),
            "mean": statistics.mean(value for rounds in ratios for value in rounds),
            "low": low, "high": high, "lower_quartile": statistics.median(lower), "minimum": statistics.median(least),
        }
    return found


def percent(value):
    return f"{value * 100:+.2f}"


def tables(result):
    """Tables for docs: medians with their interval; lower quartiles, means and minima."""
    rows = {key: summary(runs) for key, runs in result["times"].items()}
    rows = {key: row for key, row in rows.items() if row}
    order = list(dict.fromkeys(name for row in rows.values() for name in row["variants"]))
    head = "| what | no plugin, µs | run to run | " + " | ".join(order) + " |\n|---|---:|---:|" + "---:|" * len(order)
    short = "| what | " + " | ".join(order) + " |\n|---|" + "---:|" * len(order)
    first, second = [head], [short]
    for key, row in rows.items():
        what = f"{key} B" if key[-1].isdigit() else key
        cells = [row["variants"].get(name) for name in order]
        first.append(f"| {what} | {row['none']:.2f} | ±{row['run_to_run'] * 100:.1f} % | " + " | ".join(
            f"{percent(c['median'])} % [{percent(c['low'])}, {percent(c['high'])}]" if c else "-" for c in cells) + " |")
        second.append(f"| {what} | " + " | ".join(
            f"{percent(c['lower_quartile'])} / {percent(c['minimum'])} / {percent(c['mean'])}" if c else "-"
            for c in cells) + " |")
    text = "Median, % [95 % interval]:\n\n" + "\n".join(first) + "\n\nLower quartile / least / mean, %:\n\n" + "\n".join(second)
    if result.get("apart"):
        text += "\n\n" + table_apart(result["apart"])
    return text


def table_apart(apart):
    """Each variant in separate processes: median, difference from no plugin, minimum and maximum."""
    names = [name for name in dict.fromkeys(name for row in apart.values() for name in row) if name not in BASES]
    text = "In processes of their own, µs [least, most], and against no plugin:\n\n"
    text += "| what | no plugin | " + " | ".join(names) + " |\n|---|---:|" + "---:|" * len(names) + "\n"
    for key, row in apart.items():
        base = [time for name in BASES for time in row.get(name, [])]
        if not base:
            continue
        cells = [f"{statistics.median(base):.2f} [{min(base):.2f}, {max(base):.2f}]"]
        for name in names:
            times = row.get(name)
            cells.append(f"{statistics.median(times):.2f} [{min(times):.2f}, {max(times):.2f}] "
                         f"{percent(statistics.median(times) / statistics.median(base) - 1)} %" if times else "-")
        text += f"| {key}{' B' if key[-1].isdigit() else ''} | " + " | ".join(cells) + " |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", action="append", required=True, help="[NAME=]PATH of a library; may be repeated")
    parser.add_argument("--mask", action="append", default=[], help="NAME=0x..: ask NCCL for these events, do nothing")
    parser.add_argument("--nccl-source")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each process")
    parser.add_argument("--ddp-processes", type=int, default=None, help="2; none with --small")
    parser.add_argument("--ddp-rounds", type=int, default=12)
    parser.add_argument("--apart", type=int, default=0, metavar="N", help="rounds of processes of one variant each")
    parser.add_argument("--apart-ours", type=int, default=0, metavar="N",
                        help="rounds of ours and none, up to 32 KiB in those after --apart's")
    parser.add_argument("--small", action="store_true", help="up to 32 KiB")
    parser.add_argument("--built", metavar="DIR", help="builds into this folder, or uses what is there")
    parser.add_argument("--only-build", action="store_true", help="nothing else: needs --built")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--out", default="overhead.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=220, help="for all of it")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one process")
    options = parser.parse_args()

    began = time.monotonic()
    if options.ddp_processes is None:
        options.ddp_processes = 0 if options.small else 2
    random.seed(options.seed)
    options.sizes = [size for size in SIZES if size <= (min(SMALL, options.largest) if options.small else options.largest)]
    options.shares = cores(options.ranks)
    nccl = nccl_folder()
    times, apart = {}, {}
    versions = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip().splitlines()
    about = {"gpus": versions, "torch": version("torch"), "nccl": version("nvidia-nccl-cu"), "date": time.strftime("%Y-%m-%d"),
             "cores": options.shares, "unit": "microseconds"}
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        program, switch, built = made(options, Path(options.built or name), nccl)
        if options.only_build:
            print(f"built {program.name}, {switch.name}, {', '.join(built)} in {time.monotonic() - began:.0f} s")
            return
        libraries = variants(folder, options, built)
        # Ours may be loaded twice, each with its own ring; NCCL's plugins read some variables when they end.
        public = {key: value for name in built for key, value in libraries[name][1].items()}
        told = {base: "" for base in BASES} | dict(mask.split("=") for mask in options.mask) | {
            name: "@".join([str(path), *(f"{key}={value}" for key, value in needs.items() if name not in built)])
            for name, (path, needs) in libraries.items()}
        quiet = {"NCCL_DEBUG": "WARN"}

        def left():
            return options.seconds - (time.monotonic() - began)

        def note(what, is_well):
            state = "done" if is_well else "broke off"
            print(f"{what} {state} after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

        def together(without):
            """Names of the variants of one process, and its environment."""
            names = [name for name in told if name not in without]
            return names, {**quiet, **public, "NCCL_PROFILER_PLUGIN": str(switch),
                           "OVERHEAD_VARIANTS": ";".join(f"{name}={told[name]}" for name in names)}

        def keep(found):
            for key, row in found.items():
                times.setdefault(key, []).append(row)
            write()

        def write():
            Path(options.out).write_text(json.dumps({**about, "times": times, "apart": apart}, indent=1) + "\n")

        # NCCL's own libraries crash such a bench with a bus error (four ranks, all variants in one process). A DDP job works,
        # but they are skipped after the first failure, so as not to lose the rest.
        for number in range(options.processes):
            if left() < 10:
                break
            names, environment = together(set(built))
            found, is_well = ops(options, folder, program, environment, number, names, options.rounds,
                                 min(options.limit, left()), options.sizes)
            keep(found)
            note(f"process {number + 1}", is_well)
        without = set()
        for number in range(options.ddp_processes):
            if left() < 10:
                break
            names, environment = together(without)
            found, is_well = ddp(options, environment, names, options.ddp_rounds, min(options.limit, left()))
            keep(found)
            note(f"ddp {number + 1}", is_well)
            without |= set() if is_well else set(built)
        alone = {base: quiet for base in BASES} | {
            name: {**quiet, **needs, "NCCL_PROFILER_PLUGIN": str(path)}
            for name, (path, needs) in libraries.items()
        } | {"coll-log": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL", "NCCL_DEBUG_FILE": str(folder / "coll.%h.%p")}}
        # A profiler that asks for no event: the cost of its presence.
        alone["loaded"] = {**quiet, "NCCL_PROFILER_PLUGIN": str(switch), "OVERHEAD_VARIANTS": "loaded="}
        for number in range(max(options.apart, options.apart_ours)):
            order = [name for name in alone if number < options.apart or name not in built and name != "coll-log"]
            random.shuffle(order)
            for variant in order:
                if left() < 10:
                    break
                sizes = [size for size in options.sizes if number < options.apart or size <= SMALL]
                found, is_well = ops(options, folder, program, alone[variant], f"{number + 1}{order.index(variant):02}",
                                     [variant], 5, min(options.limit, left()), sizes)
                for key, row in found.items():
                    apart.setdefault(key, {}).setdefault(variant, []).append(statistics.median(row[variant]))
                write()
                note(f"apart {number + 1}, {variant}", is_well)
    print(tables({**about, "times": times, "apart": apart}))


if __name__ == "__main__":
    main()
