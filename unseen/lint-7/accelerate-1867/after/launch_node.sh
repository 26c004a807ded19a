#!/usr/bin/env bash
# started by the scheduler on each of the two machines with its number: launch_node.sh 0 | launch_node.sh 1
set -euo pipefail

RANK_OF_MACHINE=${1:?number of this machine}

source /opt/venvs/sft/bin/activate
export NCCL_SOCKET_IFNAME=bond0
export HF_HOME=/shared/hf

exec accelerate launch --config_file zero3_two_nodes.yaml --machine_rank "$RANK_OF_MACHINE" \
  sft.py --model_name_or_path /shared/models/base-13b --dataset /shared/data/dialogues \
  --per_device_train_batch_size 2 --learning_rate 1e-5 --num_train_epochs 2 --output_dir /shared/runs/sft-13b
