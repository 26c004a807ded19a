#!/bin/bash
set -euo pipefail
source "$(dirname "$0")/base_env.sh"

torchrun --nnodes "${NNODES}" --node_rank "${NODE_RANK}" \
    --nproc_per_node "${GPUS_PER_NODE}" \
    --master_addr "${MASTER_ADDR}" --master_port "${MASTER_PORT}" \
    pretrain.py --config "$1"
