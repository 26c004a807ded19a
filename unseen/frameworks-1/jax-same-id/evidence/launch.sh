#!/bin/bash
for i in 0 1; do
  CUDA_VISIBLE_DEVICES=$i python -u train_jax.py --coordinator 127.0.0.1:21056 --num-processes 2 --process-id 0 --init-timeout 30 > logs/proc$i.log 2>&1 &
done
wait
