#!/bin/bash
for r in 0 1; do
  ROUNDS=$((500 - 70 * r)) RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=27773 python -u gan.py  > logs/gan-$r.log 2>&1 &
done
wait
