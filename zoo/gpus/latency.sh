#!/bin/bash
# Compares bench with nccl-tests at small sizes on all GPUs of this node: usage latency.sh RINGLEADER NCCL_TESTS_BUILD OUT [TURNS [COLLECTIVE...]]
#
# The time of a small call differs from process to process by a third, so each side gets many processes, in turns, and
# compare.py --median compares their medians.
set -u
ringleader=$1 tests=$2 out=$3 turns=${4:-8}
shift $(($# < 4 ? $# : 4))
[ $# -gt 0 ] || set -- all_reduce all_gather reduce_scatter alltoall sendrecv broadcast reduce
n=$(nvidia-smi -L | wc -l)
mkdir -p "$out"
for turn in $(seq "$turns"); do
    for collective; do
        timeout 60 "$tests/${collective}_perf" -b 1K -e 1M -f 4 -n 200 -w 20 -c 0 -t "$n" -g 1 > "$out/$collective.nccl.$turn" 2>&1
        timeout 60 "$ringleader" bench $collective -b 1K -e 1M -f 4 -n 200 -w 20 -c 0 --latencies 0 --no-pairs --no-readback \
            --format json --fail-on never > "$out/$collective.json.$turn" 2> "$out/$collective.err.$turn"
    done
done
