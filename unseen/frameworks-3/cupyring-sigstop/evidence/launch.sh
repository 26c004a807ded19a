#!/bin/bash
for r in 0 1; do
  RANK=$r python -u power.py --iterations 900000 > logs/rank-$r.log 2>&1 &
done
wait
