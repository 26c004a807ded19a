#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=25998 WORLD_SIZE=3
for i in 0 1; do
  RANK=$i LOCAL_RANK=$i python -u train.py --timeout 40 > logs/rank$i.log 2>&1 &
done
wait
