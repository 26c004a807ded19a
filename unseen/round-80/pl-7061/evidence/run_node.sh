#!/bin/bash
# started by hand on both machines, first argument is the node
export MASTER_ADDR=10.31.7.11
export MASTER_PORT=29611
export NODE_RANK=$1
export NCCL_SOCKET_IFNAME=enp65s0f0
source ~/envs/tts/bin/activate
python synth/train.py --gpus 2 --num_nodes 2 --accelerator ddp 2>&1 | tee logs/node$1.log
