#!/bin/bash
# Compares bench with nccl-tests on all GPUs of this node: usage bench.sh RINGLEADER NCCL_TESTS_BUILD OUT
set -u
ringleader=$1 tests=$2 out=$3
n=$(nvidia-smi -L | wc -l)
mkdir -p "$out"
for collective in all_reduce all_gather reduce_scatter alltoall sendrecv broadcast reduce; do
    # Alternating, so that neither has warmer GPUs.
    for turn in 1 2; do
        timeout 60 "$tests/${collective}_perf" -b 1K -e 1G -f 4 -t "$n" -g 1 > "$out/$collective.nccl.$turn" 2>&1
        timeout 60 "$ringleader" bench $collective -b 1K -e 1G -f 4 --latencies 0 --no-pairs --no-readback --format json \
            --fail-on never > "$out/$collective.json.$turn" 2> "$out/$collective.err.$turn"
    done
done
# Verdicts: undisturbed, and with disturbances that cost bandwidth.
verdict() { local name=$1; shift; echo "== $name"; timeout 100 env "$@" | grep -v '^ *[0-9]' | grep -v '^# *\((\|size\|$\)'; }
verdict healthy "$ringleader" bench -b 64M -e 1G
verdict NCCL_P2P_DISABLE=1 NCCL_P2P_DISABLE=1 "$ringleader" bench all_reduce -b 64M -e 256M --no-pairs
verdict NCCL_ALGO=Tree NCCL_ALGO=Tree "$ringleader" bench all_reduce -b 64M -e 1G --no-pairs
verdict NCCL_PROTO=LL NCCL_PROTO=LL "$ringleader" bench all_reduce -b 64M -e 256M --no-pairs
python3 - << 'PY' &
import time, torch
x = torch.randn(8192, 8192, device="cuda:%d" % (torch.cuda.device_count() - 1), dtype=torch.bfloat16)
end = time.time() + 25
while time.time() < end:
    for _ in range(20):
        x @ x
    torch.cuda.synchronize()
PY
busy=$!
sleep 8
verdict "a busy GPU" "$ringleader" bench all_reduce -b 64M -e 1G --no-pairs
timeout 5 "$ringleader" verify --for 1s
echo "verify beside a busy GPU ends with $?"
wait $busy
