#!/usr/bin/env python3
"""What watching costs: all_reduce of 8 B to 1 GB and a DDP step, with no plugin, ours, NCCL's own profilers, NCCL's log.

    zoo/overhead/overhead.py --plugin target/release/libringleader_nccl.so --nccl-source NCCL/plugins/profiler \
        --out docs/overhead.json

Needs two GPUs or more, nvcc, and PyTorch with its NCCL. `--nccl-source` is the folder `plugins/profiler` of NCCL's public
source: Inspector and the example plugin are built from it in a temporary folder; without it they are left out. Rounds go
through all variants in changing order, so that drift of the machine meets all alike; `none` runs twice a round, and what
differs between the two is the noise.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = [8, 64, 512, 4096, 32768, 262144, 2097152, 16777216, 134217728, 1073741824]


def iterations(size):
    """Enough for batches of about 20 ms."""
    return max(4, min(2000, int(20000 / (9 + size / 250e3))))


def nccl_folder():
    import importlib.util

    for name in ("nvidia.nccl",):
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
    sys.exit("NCCL of PyTorch's packages was not found (nvidia.nccl)")


def build_ops(folder, nccl):
    library = next((nccl / "lib").glob("libnccl.so*"))
    target = folder / "ops"
    subprocess.run(
        ["nvcc", "-O2", str(HERE / "ops.cu"), "-o", str(target), f"-I{nccl / 'include'}", f"-L{library.parent}",
         f"-l:{library.name}", "-Xlinker", f"-rpath={library.parent}"],
        check=True,
        timeout=90,
    )
    return target


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


def variants(folder, options, built):
    quiet = {"NCCL_DEBUG": "WARN"}
    rings = folder / "rings"
    rings.mkdir(exist_ok=True)
    found = {
        "none": quiet,
        "none-again": quiet,
        "ringleader": {**quiet, "NCCL_PROFILER_PLUGIN": str(Path(options.plugin).resolve()),
                       "RINGLEADER_RING_DIR": str(rings)},
        "coll-log": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL", "NCCL_DEBUG_FILE": str(folder / "coll.%h.%p")},
    }
    if "inspector" in built:
        found["inspector"] = {**quiet, "NCCL_PROFILER_PLUGIN": str(built["inspector"]), "NCCL_INSPECTOR_ENABLE": "1",
                              "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500000",
                              "NCCL_INSPECTOR_DUMP_DIR": str(folder / "inspector")}
    if "example" in built:
        found["example"] = {**quiet, "NCCL_PROFILER_PLUGIN": str(built["example"]),
                            "NCCL_PROFILE_DUMP_FILE": str(folder / "example"), "NCCL_PROFILE_EVENT_MASK": "71"}
    return found


def run_all(commands, environment, limit_s):
    """Ranks of one run; the output of rank 0."""
    processes = []
    # Each rank keeps to cores of its own: where the scheduler puts a launch thread moves small operations by 20 %.
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(commands)
    for rank, command in enumerate(commands):
        env = {**os.environ, **environment, "NCCL_NVLS_ENABLE": "0", "RANK": str(rank), "LOCAL_RANK": str(rank),
               "WORLD_SIZE": str(len(commands))}
        mine = cores[rank * share:(rank + 1) * share]
        processes.append(subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            preexec_fn=lambda mine=mine: os.sched_setaffinity(0, mine),
        ))
    try:
        output = processes[0].communicate(timeout=limit_s)[0]
        codes = [process.wait(timeout=30) for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        return None
    return output if not any(codes) else None


def ops(options, folder, program, environment, turn):
    sizes = [f"{size}:{iterations(size)}" for size in SIZES if size <= options.largest]
    commands = [
        [str(program), str(rank), str(options.ranks), str(rank), str(folder / f"id-{turn}"), str(options.batches), *sizes]
        for rank in range(options.ranks)
    ]
    output = run_all(commands, environment, 120)
    found = {}
    for line in (output or "").splitlines():
        size, mode, *times = [*line.split(), "", ""]
        if mode not in ("throughput", "latency"):
            continue  # NCCL's own words
        found[f"{mode} {size}"] = statistics.median(float(time) for time in times if time)
    return found


def ddp(options, folder, environment, turn):
    environment = {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + random.randrange(20000))}
    command = [sys.executable, str(HERE / "ddp_step.py"), "--steps", str(options.ddp_steps)]
    output = run_all([command] * options.ranks, environment, 180)
    return {"ddp step": float(output.split()[-1])} if output else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--nccl-source")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--ddp-rounds", type=int, default=3)
    parser.add_argument("--ddp-steps", type=int, default=120)
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--out", default="overhead.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=480, help="no round is begun after this many seconds")
    options = parser.parse_args()
    import time

    began = time.monotonic()
    random.seed(options.seed)
    nccl = nccl_folder()
    times = {}
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        program = build_ops(folder, nccl)
        built = build_public_plugins(folder, options.nccl_source) if options.nccl_source else {}
        wanted = variants(folder, options, built)
        for round_number in range(options.rounds):
            names = list(wanted)
            random.shuffle(names)
            for variant in names:
                if time.monotonic() - began > options.seconds:
                    break
                found = ops(options, folder, program, wanted[variant], f"{round_number}-{variant}")
                if round_number < options.ddp_rounds:
                    found |= ddp(options, folder, wanted[variant], round_number)
                if not found:
                    print(f"{variant}: a run gave nothing", file=sys.stderr)
                for key, value in found.items():
                    times.setdefault(key, {}).setdefault(variant, []).append(value)
                shutil.rmtree(folder / "inspector", ignore_errors=True)
            print(f"round {round_number + 1} done after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    versions = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip().splitlines()
    import torch

    result = {
        "gpus": versions,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "date": time.strftime("%Y-%m-%d"),
        "unit": "microseconds",
        "times": times,
    }
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


def table(result):
    """A table for docs: medians, and the median over rounds of each variant against the run without a plugin."""
    order = [name for name in ("none-again", "ringleader", "inspector", "example", "coll-log")
             if any(name in row for row in result["times"].values())]
    lines = ["| what | no plugin, µs | " + " | ".join(order) + " |", "|---|---:|" + "---:|" * len(order)]
    for key, row in result["times"].items():
        none = row.get("none", [])
        if not none:
            continue
        base = statistics.median(none)
        cells = []
        for name in order:
            ratios = [value / reference - 1 for value, reference in zip(row.get(name, []), none)]
            cells.append(f"{statistics.median(ratios) * 100:+.2f} %" if ratios else "-")
        lines.append(f"| {key} B | {base:.2f} | " + " | ".join(cells) + " |" if key[-1].isdigit() else
                     f"| {key} | {base:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
