"""Copies between two GPUs, both ways and without a pause, as long as a file exists: `copier.py A B FILE`.

It prints the bandwidth that it reached each time, and ends with its stdin.
"""

import os
import select
import sys
import time

import torch

N_STREAMS, SIZE_BYTES = 4, 256 << 20


def main():
    a, b, go = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    lanes = []
    for here, there in ((a, b), (b, a)):
        for _ in range(N_STREAMS):
            source = torch.ones(SIZE_BYTES, dtype=torch.uint8, device=f"cuda:{here}")
            target = torch.empty(SIZE_BYTES, dtype=torch.uint8, device=f"cuda:{there}")
            target.copy_(source)
            # A stream on both ends: PyTorch makes a copy wait for the receiver's current stream, too.
            lanes.append((torch.cuda.Stream(here), torch.cuda.Stream(there), source, target))
    torch.cuda.synchronize(a)
    torch.cuda.synchronize(b)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        begin, n = time.monotonic(), 0
        while os.path.exists(go):
            for stream, end, source, target in lanes:
                with torch.cuda.stream(end), torch.cuda.stream(stream):
                    target.copy_(source, non_blocking=True)
            n += 1
            if n == 1:
                open(go + ".on", "w").close()
            # A few copies wait in each stream, so that none is ever idle.
            if n % 4 == 0:
                for stream, _, _, _ in lanes:
                    stream.synchronize()
        if n:
            torch.cuda.synchronize(a)
            torch.cuda.synchronize(b)
            os.remove(go + ".on")
            print(f"{n * N_STREAMS * SIZE_BYTES / (time.monotonic() - begin) / 1e9:.1f} GB/s each way", flush=True)


if __name__ == "__main__":
    main()
