#!/usr/bin/env python3
"""Writes Flight Recorder dumps of a wide job in which one rank stops, and everyone waits for it.

    tools/wide_job.py FOLDER [--ranks 1024] [--calls 120] [--stops 437] [--unlike]

Tensor parallel 8, the rest data parallel, as Megatron-LM calls: an all_reduce of the eight in each layer, and a reduce_scatter of the
data-parallel group after each eight layers. The rank in `--stops` makes no call any more after three quarters of the job: the seven
others wait for it in an all_reduce, and all others in the next reduce_scatter. With `--unlike` each eight have tensors of a size of
their own, so that no two groups make the same calls. One file for each rank, as PyTorch 2.11 writes it.
"""

import argparse
import pathlib
import pickle

TENSOR = 8
LAYERS = 8
EPOCH_NS = 1_764_000_000_000_000_000
MAIN = [
    {"name": "train", "filename": "/workspace/llm/train.py", "line": 350},
    {"name": "main", "filename": "/workspace/llm/train.py", "line": 402},
]
ALL_REDUCE = [{"name": "forward", "filename": "/workspace/llm/attention.py", "line": 311}, *MAIN]
SCATTER = [{"name": "finish_grad_sync", "filename": "/workspace/llm/buffers.py", "line": 207}, *MAIN]


def calls_of(rank, calls, stops):
    """What a rank calls, until it waits or stops: (is a reduce_scatter, time in ns, whether it has ended)."""
    # The call that the rank does not make is an all_reduce in the midst of the layers.
    period = LAYERS + 1
    last = calls * 3 // 4 // period * period + LAYERS // 2
    # Without it the seven others wait, and all who share a reduce_scatter with one of them: that is everyone.
    waits_at = last if rank // TENSOR == stops // TENSOR else last - last % period + LAYERS
    for n in range(waits_at if rank == stops else waits_at + 1):
        yield n % period == LAYERS, EPOCH_NS + n * 9_000_000 + (rank * 7919 + n * 104_729) % 4_000_003, n < waits_at


def dump(rank, ranks, calls, stops, unlike, members):
    groups = {"tensor": (f"t{rank // TENSOR}", "TENSOR_MODEL_PARALLEL_GROUP"), "data": (f"d{rank % TENSOR}", "DATA_PARALLEL_GROUP")}
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": members["all"]},
        groups["tensor"][0]: {"name": groups["tensor"][0], "desc": groups["tensor"][1], "ranks": members["tensor", rank // TENSOR]},
        groups["data"][0]: {"name": groups["data"][0], "desc": groups["data"][1], "ranks": members["data", rank % TENSOR]},
    }
    entries, counts = [], {"tensor": 0, "data": 0}
    for is_scatter, at, is_over in calls_of(rank, calls, stops):
        kind = "data" if is_scatter else "tensor"
        counts[kind] += 1
        sizes = [[4_194_304]] if is_scatter else [[1024 + unlike * (rank // TENSOR), 1, 8192]]
        entries.append({
            "frames": SCATTER if is_scatter else ALL_REDUCE, "record_id": len(entries), "pg_id": 1 + is_scatter,
            "process_group": groups[kind], "thread_name": "python3", "thread_id": "138661255512832",
            "collective_seq_id": counts[kind], "p2p_seq_id": 0, "op_id": counts[kind],
            "profiling_name": "nccl:_reduce_scatter_base" if is_scatter else "nccl:all_reduce",
            "time_created_ns": at, "input_sizes": sizes, "input_dtypes": ["BFloat16"],
            "output_sizes": [[sizes[0][0] * TENSOR // ranks or 1]] if is_scatter else sizes, "output_dtypes": ["BFloat16"],
            "state": "completed" if is_over else "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": at + 5_000_000 if is_over else None,
            "retired": is_over, "timeout_ms": 600_000, "is_p2p": False,
        })
    status = {
        name: {"last_enqueued_collective": n, "last_started_collective": -1, "last_completed_collective": n - 1}
        for name, n in (("0", 0), (groups["tensor"][0], counts["tensor"]), (groups["data"][0], counts["data"]))
    }
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": status, "entries": entries}


def write(folder, ranks=1024, calls=120, stops=437, unlike=False):
    """Writes the dumps, and returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    members = {"all": str(list(range(ranks)))}
    members |= {("tensor", n): str(list(range(n * TENSOR, n * TENSOR + TENSOR))) for n in range(ranks // TENSOR)}
    members |= {("data", n): str(list(range(n, ranks, TENSOR))) for n in range(TENSOR)}
    for rank in range(ranks):
        with open(folder / f"fr_rank{rank}", "wb") as file:
            pickle.dump(dump(rank, ranks, calls, stops, unlike, members), file, protocol=2)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=1024, help=f"a multiple of {TENSOR}")
    parser.add_argument("--calls", type=int, default=120)
    parser.add_argument("--stops", type=int, default=437, help="the rank that stops")
    parser.add_argument("--unlike", action="store_true", help="no two groups make the same calls")
    args = parser.parse_args()
    write(args.folder, args.ranks, args.calls, args.stops, args.unlike)


if __name__ == "__main__":
    main()
