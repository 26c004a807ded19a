#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=24687 WORLD_SIZE=2
for i in 0 1; do
  $([ $i = 1 ] && echo env NCCL_PROTO=Simple) env RANK=$i LOCAL_RANK=$i python -u train.py --timeout 30 > logs/rank$i.log 2>&1 &
done
wait
