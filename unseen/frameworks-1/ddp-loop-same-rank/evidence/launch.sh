#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=20591 WORLD_SIZE=2
for i in 0 1; do
  RANK=0 LOCAL_RANK=$i python -u train.py --timeout 40 > logs/rank$i.log 2>&1 &
done
wait
