#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29862 WORLD_SIZE=2
for i in 0 1; do
  RANK=$i LOCAL_RANK=$i python -u train.py --epochs 60 --train-size 1024 --timeout 30 > logs/rank$i.log 2>&1 &
done
wait
