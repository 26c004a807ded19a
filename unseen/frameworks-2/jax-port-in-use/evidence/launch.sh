#!/bin/bash
for i in 0 1; do
  CUDA_VISIBLE_DEVICES=$i python -u train_jax.py --coordinator 127.0.0.1:26452 --num-processes 2 --process-id $i --init-timeout 30 > logs/proc$i.log 2>&1 &
done
wait
