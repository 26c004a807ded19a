#!/usr/bin/env python3
"""HolisticTraceAnalysis beside `ringleader trace`, on the same made files, in one run: speed, peak memory, equal figures.

    python3 -m venv venv && venv/bin/pip install HolisticTraceAnalysis
    cargo build --release
    venv/bin/python tools/hta_beside.py target/release/ringleader [--megabytes 50] [--ranks 2]

Each tool runs in a process of its own, and its processor time (user + system) and peak memory are those that the system
counts for that process. HTA loads the files and runs `get_temporal_breakdown`; ringleader runs its whole analysis. Figures that
both define equally are compared, and the run fails if they differ: steps, kernels, and per rank the compute time of all
steps but the last (HTA leaves that one out). The files are made here: a fixed program with known times, as PyTorch writes it.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile

STEP_OPS = 600
GEMM_US, COMM_US = 120, 120
PITCH_US = 150


def write_trace(path, rank, world, n_bytes):
    """A trace of steps of STEP_OPS operators, each with a launch and a kernel, and a collective for every eighth of them."""
    out = gzip.open(path, "wt", compresslevel=6) if path.endswith(".gz") else open(path, "w")
    size, n, step = 0, 0, 0
    with out:
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
                "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
        size += out.write(json.dumps(head)[:-1] + ', "traceEvents": [')
        comma = ""
        while size < n_bytes:
            begin = step * (STEP_OPS + 4) * PITCH_US
            lines = [
                f'{comma}\n  {{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 47, "tid": 47,\n'
                f'    "ts": {begin}.000, "dur": {(STEP_OPS + 3) * PITCH_US}.000,\n    "args": {{\n      "External id": {n + 1}, "Ev Idx": {n}\n    }}\n  }}']
            comma = ","
            for op in range(STEP_OPS):
                n += 1
                ts = begin + 10 + op * PITCH_US
                lines.append(
                    f',\n  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::mm_{op % 13}", "pid": 47, "tid": 47,\n    "ts": {ts}.250, "dur": 90.125,\n'
                    f'    "args": {{\n      "External id": {n},"Record function id": 0, "Sequence number": {n}, "Fwd thread id": 0, "Ev Idx": {n}\n    }}\n  }},\n'
                    f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 47, "tid": 47,\n    "ts": {ts + 5}.000, "dur": 6.500,\n'
                    f'    "args": {{\n      "External id": {n}, "cbid": 211, "correlation": {n}\n    }}\n  }},\n'
                    f'  {{\n    "ph": "s", "id": {n}, "pid": 47, "tid": 47, "ts": {ts + 5}.000,\n    "cat": "ac2g", "name": "ac2g"\n  }},\n'
                    f'  {{\n    "ph": "X", "cat": "kernel", "name": "void gemm_{op % 7}<float, 128, 128>(float const*, float*)", "pid": 0, "tid": 7,\n'
                    f'    "ts": {ts + 20}.000, "dur": {GEMM_US}.000,\n'
                    f'    "args": {{\n      "External id": {n}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {n},\n'
                    f'      "registers per thread": 168, "shared memory": 98304, "blocks per SM": 0.969697, "warps per SM": 7.757576,\n'
                    f'      "grid": [16, 8, 1], "block": [256, 1, 1], "est. achieved occupancy %": 12\n    }}\n  }},\n'
                    f'  {{\n    "ph": "f", "id": {n}, "pid": 0, "tid": 7, "ts": {ts + 20}.000,\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}')
                if op % 8 == 7:
                    n += 1
                    lines.append(
                        f',\n  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 47, "tid": 47,\n    "ts": {ts + 30}.000, "dur": 7.000,\n'
                        f'    "args": {{\n      "External id": {n}, "cbid": 430, "correlation": {n}\n    }}\n  }},\n'
                        f'  {{\n    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "pid": 0, "tid": 20,\n'
                        f'    "ts": {ts + 60}.000, "dur": {COMM_US}.000,\n'
                        f'    "args": {{\n      "Collective name": "allreduce", "In msg nelems": 1048576, "Out msg nelems": 1048576, "Group size": {world}, "dtype": "Float",\n'
                        f'      "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "{list(range(world))}",\n'
                        f'      "External id": {n}, "queued": 0, "device": 0, "context": 1, "stream": 20, "correlation": {n}, "grid": [24, 1, 1], "block": [544, 1, 1]\n    }}\n  }}')
            size += out.write("".join(lines))
            step += 1
        out.write("\n]}\n")
    return step


HTA = """
import json, logging, sys, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
begun = time.time()
files = {int(k): v for k, v in json.loads(sys.argv[1]).items()}
analysis = TraceAnalysis(trace_files=files, trace_dir=sys.argv[2])
loaded = time.time() - begun
table = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
column = "compute_time(us)"
print(json.dumps({
    "load_s": loaded,
    "compute_us": {int(r["rank"]): float(r[column]) for _, r in table.iterrows()},
    "overlap_pct": {int(r["rank"]): float(r["comp_comm_overlap_pctg"]) for _, r in overlap.iterrows()},
}))
"""


def run(command):
    """Output, processor seconds and peak memory (MB) of a command; children that it waited for count."""
    helper = ("import resource,subprocess,sys,json;p=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE,stderr=subprocess.PIPE);"
              "u=resource.getrusage(resource.RUSAGE_CHILDREN);sys.stderr.write(p.stderr.decode(errors='replace')[-2000:]) if p.returncode not in (0,5) else None;"
              "print(json.dumps([p.returncode,u.ru_utime+u.ru_stime,u.ru_maxrss/1024,p.stdout.decode()]))")
    done = subprocess.run([sys.executable, "-c", helper, *command], stdout=subprocess.PIPE, check=True)
    code, seconds, peak, text = json.loads(done.stdout)
    if code not in (0, 5):
        sys.exit(f"{command[0]} ended with {code}")
    return text, seconds, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ringleader")
    parser.add_argument("--megabytes", type=float, default=50, help="size of one rank's file before it is packed")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="runs of ringleader; the fastest counts")
    options = parser.parse_args()
    failed = False
    print("| files | tool | processor time | MB/s | peak memory |\n|---|---|---|---|---|")
    for ending in [".json", ".json.gz"]:
        with tempfile.TemporaryDirectory() as folder:
            paths, n_steps = {}, 0
            for rank in range(options.ranks):
                paths[rank] = os.path.join(folder, f"rank{rank}{ending}")
                n_steps = write_trace(paths[rank], rank, options.ranks, options.megabytes * 1e6)
            opened = gzip.open if ending.endswith("gz") else open
            size = 0
            for path in paths.values():
                with opened(path, "rb") as file:
                    while chunk := file.read(1 << 20):
                        size += len(chunk)
            # HTA wants names without their folder.
            names = json.dumps({rank: os.path.basename(path) for rank, path in paths.items()})
            text, hta_s, hta_mb = run([sys.executable, "-c", HTA, names, folder])
            hta = json.loads(text.strip().splitlines()[-1])
            runs = [run([options.ringleader, "trace", "--format", "json", folder]) for _ in range(options.repeat)]
            text, ours_s, ours_mb = min(runs, key=lambda one: one[1])
            ours = json.loads(text)
            label = f"{options.ranks} x {options.megabytes:.0f} MB {ending}"
            for tool, seconds, peak in [("HTA", hta_s, hta_mb), ("ringleader", ours_s, ours_mb)]:
                print(f"| {label} | {tool} | {seconds:.2f} s | {size / 1e6 / seconds:.0f} | {peak:.0f} MB |")
            for rank in ours["ranks"]:
                n = rank["rank"]
                truth = (n_steps - 1) * STEP_OPS * GEMM_US
                here = rank["compute"] * 1e3 * (n_steps - 1)
                pairs = [("compute of all steps but one, us", hta["compute_us"][str(n)], here, truth),
                         ("overlap, %", hta["overlap_pct"][str(n)],
                          100 * rank["hidden_comm"] / (rank["hidden_comm"] + rank["exposed_comm"]), None)]
                for what, theirs, mine, truth in pairs:
                    same = abs(theirs - mine) <= max(0.002 * abs(theirs), 0.1) and (truth is None or abs(mine - truth) <= 0.002 * truth)
                    failed |= not same
                    truth = "" if truth is None else f", truth {truth:.0f}"
                    print(f"  {label} rank {n}: {what}: HTA {theirs:.1f}, ringleader {mine:.1f}{truth}: {'equal' if same else 'DIFFERENT'}")
    sys.exit(1 if failed else 0)


main()
