#!/bin/bash
for r in 0 1; do
  RANK=$r python -u power.py  > logs/rank-$r.log 2>&1 &
done
wait
