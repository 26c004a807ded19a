#!/bin/bash
for r in 0 1; do
  RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=31340 python -u gan.py  > logs/gan-$r.log 2>&1 &
done
wait
