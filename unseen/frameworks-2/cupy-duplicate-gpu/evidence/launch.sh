#!/bin/bash
for i in 0 1; do
  python -u fit_cupy.py --world 2 --device 0 --rank $i --port 28536  > logs/rank$i.log 2>&1 &
done
wait
