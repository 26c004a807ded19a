#!/bin/bash
# Runs verify on all GPUs of this node: usage verify.sh RINGLEADER
set -u
ringleader=$1
echo "== healthy, 30 s"
time timeout 120 "$ringleader" verify --for 30s
echo "ends with $?"
echo "== a hundred planted faults"
time timeout 200 "$ringleader" verify --prove 100
echo "ends with $?"
echo "== one fault, throughout"
for fault in memory:0 product:0 buffer:0 gpu:0 link:0-1; do
    timeout 60 "$ringleader" verify --for 1s --inject $fault | head -4
done
echo "== stopped after 2 s"
"$ringleader" verify --for 5m > /tmp/verify.stopped &
sleep 4; kill -INT $!; wait $!; echo "ends with $?"; head -3 /tmp/verify.stopped
nvidia-smi --query-gpu=memory.used --format=csv
