#!/bin/bash
ulimit -n 40
export MASTER_ADDR=127.0.0.1 MASTER_PORT=20067 WORLD_SIZE=2
for i in 0 1; do
  RANK=$i LOCAL_RANK=$i python -u train.py --timeout 40 --workers 8 > logs/rank$i.log 2>&1 &
done
wait
