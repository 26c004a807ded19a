#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=22786 WORLD_SIZE=2
RANK=0 LOCAL_RANK=0 python -u train.py --timeout 40 > logs/rank0.log 2>&1 &
RANK=1 LOCAL_RANK=1 python -u train.py --timeout 40 --amp > logs/rank1.log 2>&1 &
wait
