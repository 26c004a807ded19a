#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=28463 WORLD_SIZE=2
for i in $(seq 0 $((${NGPU:-1} - 1))); do
  RANK=$i LOCAL_RANK=$i python -u train.py --timeout 40 > logs/rank$i.log 2>&1 &
done
wait
