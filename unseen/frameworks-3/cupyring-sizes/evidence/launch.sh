#!/bin/bash
for r in 0 1; do
  RANK=$r python -u power.py --n $((8192 - r * 4096)) --iterations 2000 > logs/rank-$r.log 2>&1 &
done
wait
