#!/bin/bash
export MASTER_ADDR=gpu-a17 MASTER_PORT=30329 WORLD_SIZE=2
for i in 0 1; do
  RANK=$i LOCAL_RANK=$i python -u train.py --timeout 30 > logs/rank$i.log 2>&1 &
done
wait
