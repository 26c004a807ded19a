#!/bin/bash
# Compares bench with nccl-tests on all GPUs of this node: usage bench.sh RINGLEADER NCCL_TESTS_BUILD OUT [MIN MAX FACTOR TURNS]
#
# TOGETHER=1: one process of bench for all collectives in each turn, which saves the starts. VERDICTS=0: the comparison alone.
set -u
ringleader=$1 tests=$2 out=$3 min=${4:-1K} max=${5:-1G} factor=${6:-4} turns=${7:-2}
collectives="all_reduce all_gather reduce_scatter alltoall sendrecv broadcast reduce"
n=$(nvidia-smi -L | wc -l)
mkdir -p "$out"
theirs() { timeout 60 "$tests/$1_perf" -b "$min" -e "$max" -f "$factor" -t "$n" -g 1 > "$out/$1.nccl.$turn" 2>&1; }
# NAME, then collectives.
ours() {
    local name=$1; shift
    timeout 120 "$ringleader" bench "$@" -b "$min" -e "$max" -f "$factor" --latencies 0 --no-pairs --no-readback --format json \
        --fail-on never --save "$out/$name.save.$turn" > "$out/$name.json.$turn" 2> "$out/$name.err.$turn"
}
# Alternating, so that neither has warmer GPUs.
for turn in $(seq "$turns"); do
    if [ -n "${TOGETHER:-}" ]; then
        [ $((turn % 2)) = 1 ] || ours all $collectives
        for collective in $collectives; do theirs $collective; done
        [ $((turn % 2)) = 0 ] || ours all $collectives
    else
        for collective in $collectives; do theirs $collective; ours $collective $collective; done
    fi
    echo "turn $turn ended after $SECONDS s"
done
[ "${VERDICTS:-1}" = 1 ] || exit 0
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
