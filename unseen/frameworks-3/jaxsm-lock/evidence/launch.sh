#!/bin/bash
export HOSTS=2
for r in 0 1; do
  CUDA_VISIBLE_DEVICES=$r python -u classify.py --rank $r --hosts $HOSTS --address localhost:29221  > logs/host-$r.log 2>&1 &
done
wait
