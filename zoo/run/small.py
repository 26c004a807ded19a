#!/usr/bin/env python3
"""A distributed job without PyTorch, for tests of many nodes on a small machine: ranks connect to a socket, sum a number every
step, and rank 0 saves safetensors every few steps. The job ends if a peer exits, and hangs if a peer is unreachable.

    small.py --rank R --world N --master HOST:PORT --dir D --steps S [--resume FILE]

Rank, number of ranks and rendezvous come from the launcher (torchrun, accelerate, deepspeed, mpirun, srun) unless they are
given. `--fault kill|exception|exit --at STEP --by RANK` plants a fault once, with `--again` in every attempt.
"""

import argparse
import json
import os
import signal
import socket
import struct
import sys
import time


def exactly(peer, n):
    data = b""
    while len(data) < n:
        part = peer.recv(n - len(data))
        if not part:
            raise ConnectionError("Connection closed by peer")
        data += part
    return data


def of_launcher(*names):
    """The first of these variables that is set."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def meeting_point():
    """torchrun uses MASTER_PORT for its own store: the ranks use the port 500 above."""
    return f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{int(os.environ.get('MASTER_PORT', '29500')) + 500}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=of_launcher("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"))
    parser.add_argument("--world", type=int, default=of_launcher("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--master", default=meeting_point())
    parser.add_argument("--dir", required=True)
    parser.add_argument("--resume", default=None)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--step-ms", type=int, default=100)
    parser.add_argument("--hurry", default=None, help="no pause between steps once this file is there")
    parser.add_argument("--fault", choices=["kill", "exception", "exit"], default=None)
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--by", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="only rank 0 prints steps")
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("RANK", str(args.rank))
    host, port = args.master.rsplit(":", 1)
    step, total = 0, 0
    if args.resume:
        data = open(args.resume, "rb").read()
        step, total = struct.unpack("<qq", data[-16:])
        print(f"resumed from step {step}", flush=True)
    peers = []
    if args.rank == 0:
        server = socket.create_server((host, int(port)))
        server.settimeout(60)
        while len(peers) < args.world - 1:
            peer, _ = server.accept()
            peers.append(peer)
    else:
        until = time.time() + 60
        while True:
            try:
                peers = [socket.create_connection((host, int(port)), 5)]
                break
            except OSError:
                if time.time() > until:
                    raise
                time.sleep(0.2)
    for peer in peers:
        peer.settimeout(None)
    generation = os.environ.get("RINGLEADER_GENERATION", "0")
    while step < args.steps:
        step += 1
        strike(args, step)
        mine = step * (args.rank + 1) if args.world == 1 else step
        if args.rank == 0:
            got = [struct.unpack("<q", exactly(peer, 8))[0] for peer in peers]
            assert all(value == mine for value in got), (mine, got)
            total += mine
            for peer in peers:
                peer.sendall(struct.pack("<q", total))
            with open(os.path.join(args.dir, "steps.jsonl"), "a") as file:
                row = {"step": step, "at": time.time(), "generation": int(generation), "node": os.environ.get("NODE")}
                file.write(json.dumps(row) + "\n")
            if step % args.save_every == 0:
                save(args.dir, step, total)
            print(f"step {step} loss {1 / step:.4f}", flush=True)
        else:
            peers[0].sendall(struct.pack("<q", mine))
            total = struct.unpack("<q", exactly(peers[0], 8))[0]
            if not args.quiet:
                print(f"step {step} loss {1 / step:.4f}", flush=True)
        if not (args.hurry and os.path.exists(args.hurry)):
            time.sleep(args.step_ms / 1000)
    if args.rank == 0:
        with open(os.path.join(args.dir, "final.json"), "w") as file:
            json.dump({"total": total}, file)


def strike(args, step):
    """The planted fault, if it is due at this step on this rank."""
    if args.fault is None or step != args.at or args.rank != args.by:
        return
    mark = os.path.join(args.dir, "struck")
    if os.path.exists(mark) and not args.again:
        return
    open(mark, "a").close()
    if args.fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if args.fault == "exit":
        os._exit(7)
    raise ValueError(f"batch of step {step} has no label")


def save(folder, step, total):
    os.makedirs(os.path.join(folder, "ckpt"), exist_ok=True)
    header = json.dumps({"state": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}}).encode()
    path = os.path.join(folder, "ckpt", f"step_{step}.safetensors")
    with open(path + ".tmp", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + struct.pack("<qq", step, total))
    os.rename(path + ".tmp", path)


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, OSError) as error:
        print(f"RuntimeError: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
