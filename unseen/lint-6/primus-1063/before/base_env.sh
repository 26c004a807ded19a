#!/bin/bash
# Sourced by every launcher, inside the container, before torchrun.

HELPERS="$(cd "$(dirname "${BASH_SOURCE[0]}")/helpers" && pwd)"

export MASTER_ADDR=${MASTER_ADDR:-localhost}
export MASTER_PORT=${MASTER_PORT:-29500}
export NNODES=${NNODES:-1}
export NODE_RANK=${NODE_RANK:-0}
export GPUS_PER_NODE=${GPUS_PER_NODE:-8}

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}
export HSA_ENABLE_SDMA=1
export GPU_MAX_HW_QUEUES=2

export NCCL_DEBUG=${NCCL_DEBUG:-}
export NCCL_IB_HCA=${NCCL_IB_HCA:-}
export NCCL_IB_GID_INDEX=${NCCL_IB_GID_INDEX:-3}

# network for bootstrap and gloo
if [ -z "${SOCKET_IF:-}" ]; then
    SOCKET_IF=$(bash "${HELPERS}/get_interface.sh" 2>/dev/null || hostname -I | awk '{print $1}')
fi
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$SOCKET_IF}
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$SOCKET_IF}

if [ "${NODE_RANK}" = 0 ]; then
    echo "[env] ${NNODES} nodes, master ${MASTER_ADDR}:${MASTER_PORT}, network ${SOCKET_IF}"
fi
