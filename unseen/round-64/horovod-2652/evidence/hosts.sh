#!/bin/bash
# ./hosts.sh
for h in gpuvm-a gpuvm-b gpuvm-c; do
  ping -c1 -W1 $h > /dev/null 2>&1 && echo $h:1
done
