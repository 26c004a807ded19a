#!/usr/bin/env bash
# run by: srun --ntasks-per-node=1 --container-image=... bash launch.sh
set -euo pipefail
cd "$(dirname "$0")/.."

RDZV_HOST=$(scontrol show hostnames "${SLURM_STEP_NODELIST:-localhost}" | head -1 || echo localhost)
ARGS=()
ARGS+=(--nnodes=${SLURM_NNODES:-1} --node-rank=${SLURM_NODEID:-0} --nproc-per-node=gpu)
ARGS+=(--master-addr="$RDZV_HOST" --master-port=29541)

exec torchrun "${ARGS[@]}" pretrain.py --config configs/moe-16b.toml
