#!/usr/bin/env bash
# usage: train_node.sh <0|1>, once on each machine
set -euo pipefail
cd "$(dirname "$0")"

export NODE_RANK=${1:?number of this machine}
set -a
source cluster.env
set +a

exec megatron sft \
  --load /shared/mcore/base-32b \
  --dataset /shared/data/instructions.jsonl \
  --tensor_model_parallel_size 4 \
  --pipeline_model_parallel_size 2 \
  --sequence_parallel true \
  --micro_batch_size 1 \
  --global_batch_size 32 \
  --recompute_granularity full \
  --recompute_method uniform \
  --recompute_num_layers 1 \
  --lr 1e-5 \
  --max_epochs 1 \
  --save /shared/runs/sft-32b \
  --save_interval 200
