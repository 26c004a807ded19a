#!/usr/bin/env python3
"""One rank of a small training job; a settings file selects the kind. Started by zoo/live.py or torchrun:

    torchrun --nproc-per-node 4 zoo/train.py --settings FILE

The file (JSON) also defines whether, when and where a fault happens. Command line, environment and output do not reveal
it. The file `truth` records what was done, one JSON object per line.
"""

import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

DEFAULTS = {
    "kind": "plain",
    "steps": 60,
    "step_ms": 120,
    "jitter_ms": 0,
    "bucket_kb": [4096, 2048, 4],
    "width": 1024,
    "backend": "nccl",
    "oversubscribe": False,
    "blocking_sync": False,
    "checkpoint_every": 0,
    "checkpoint_rank": None,
    "first_step_seconds": 0,
    "first_step_extra": 0,
    "compile": False,
    "eval_every": 0,
    "eval_seconds": 4,
    "fault": None,
    "fault_rank": -1,
    "fault_step": -1,
    "variant": 0,
    "truth": None,
    "work": "/tmp",
    "tracebacks": False,
    "control": None,
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", required=True)
    given = parser.parse_args(arguments)
    with open(given.settings) as file:
        read = json.load(file)
    unknown = set(read) - set(DEFAULTS)
    if unknown:
        parser.error(f"unknown settings: {', '.join(sorted(unknown))}")
    run(argparse.Namespace(**{**DEFAULTS, **read}))


def run(settings):
    if settings.tracebacks:
        import faulthandler
        import signal

        faulthandler.register(signal.SIGUSR1, all_threads=True)
    rank = int(os.environ["RANK"])
    if settings.oversubscribe:
        # NCCL treats the ranks as separate hosts: it then allows ranks to share a GPU and uses sockets between them.
        os.environ.setdefault("NCCL_HOSTID", f"zoo-host-{rank}")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if settings.kind == "dummy":
        from jobs import dummy

        dummy.run(settings)
        return
    from jobs import kinds, trainer

    job = trainer.Job(settings)
    job.start()
    kinds.KINDS[settings.kind](job)
    job.finish()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
