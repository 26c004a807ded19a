#!/bin/bash
for r in 1; do
  RANK=$r python -u power.py --patience 15 > logs/rank-$r.log 2>&1 &
done
wait
