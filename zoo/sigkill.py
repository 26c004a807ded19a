#!/usr/bin/env python3
"""Kills the whole job in the middle of a collective: do the rings show the operation of every rank?

    zoo/sigkill.py --bin target/release/ringleader --plugin target/release/libringleader_nccl.so --rounds 5 --record DIR

Ranks call all_reduce repeatedly, each with its own pauses. Before and after each call they write their position to memory
that outlives them. SIGKILL, by pid, ends all of them at one moment. Then `ringleader diagnose` of the rings alone must name
for each rank the operation that it was in, or that it was in none. Each round has its own random moment. Needs PyTorch with
NCCL and one GPU per rank. Stops and changes nothing else.
"""

import argparse
import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launch import free_port

SAID = re.compile(r"rank (\d+): (?:all_reduce #(\d+) |nothing in flight(?:; last was all_reduce #(\d+))?)")


def a_rank(folder):
    """Calls until it is killed; its position is two numbers: the call, and whether it is inside."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    with open(folder / f"place-{rank}", "r+b") as file:
        place = mmap.mmap(file.fileno(), 16)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    tensor = torch.ones(64 << 20, device="cuda")
    dice = random.Random(rank)
    number = 0
    while True:
        # Sometimes one rank comes late, so that the others wait inside.
        time.sleep(dice.choice([0, 0, 0.001, 0.02 * dice.random(), 0.1 * (dice.random() < 0.2)]))
        number += 1
        place[:16] = struct.pack("<QQ", number, 1)
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        place[:16] = struct.pack("<QQ", number, 0)


def a_round(options, folder, dice):
    """Where each rank was, the answer for it, and its text."""
    rings = folder / "rings"
    rings.mkdir(parents=True)
    for rank in range(options.ranks):
        (folder / f"place-{rank}").write_bytes(bytes(16))
    environment = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(options.ranks),
        "NCCL_NVLS_ENABLE": "0", "NCCL_PROFILER_PLUGIN": str(options.plugin), "RINGLEADER_RING_DIR": str(rings),
    }
    ranks = [
        subprocess.Popen([sys.executable, __file__, "--rank-of", str(folder)],
                         env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(options.ranks)
    ]

    def places():
        return [struct.unpack("<QQ", (folder / f"place-{rank}").read_bytes()) for rank in range(options.ranks)]

    try:
        until = time.monotonic() + 60
        while min(number for number, _ in places()) < 50:
            if time.monotonic() > until or any(rank.poll() is not None for rank in ranks):
                raise RuntimeError("the job did not start")
            time.sleep(0.05)
        time.sleep(dice.random())
    finally:
        for rank in ranks:
            os.kill(rank.pid, signal.SIGKILL)
        for rank in ranks:
            rank.wait()
    command = [str(options.bin), "diagnose", "--format", "json", str(rings)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    report = json.loads(said)
    words = {}
    for finding in report["findings"]:
        for evidence in finding["evidence"]:
            found = SAID.match(evidence["text"])
            if found:
                words[int(found[1])] = (int(found[2] or found[3] or 0), int(found[2] is not None), evidence["text"])
    return places(), words, report["verdict"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda path: Path(path).resolve())
    parser.add_argument("--plugin", type=lambda path: Path(path).resolve())
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="keeps the rings of each round")
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        return a_rank(options.rank_of)
    dice = random.Random(options.seed)
    right = within = 0
    with tempfile.TemporaryDirectory(prefix="sigkill-") as name:
        for number in range(options.rounds):
            folder = Path(name) / str(number)
            places, words, verdict = a_round(options, folder, dice)
            for rank, place in enumerate(places):
                said = words.get(rank, (None, None, "nothing"))
                is_right = said[:2] == place
                right += is_right
                within += place[1]
                print(f"round {number + 1}, rank {rank}: {'within' if place[1] else 'after'} #{place[0]}; "
                      f"{'right' if is_right else 'WRONG'}: {said[2]}", flush=True)
            print(f"round {number + 1}: {json.dumps(verdict)[:300]}")
            if options.record:
                shutil.copytree(folder / "rings", options.record / f"round-{number + 1}")
                (options.record / f"round-{number + 1}.json").write_text(json.dumps(places))
    total = options.rounds * options.ranks
    print(f"{right} of {total} ranks right, {within} of them killed within a collective")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
