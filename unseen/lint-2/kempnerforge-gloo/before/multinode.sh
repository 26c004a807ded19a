#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --output=logs/%x-%j.out

set -euo pipefail
cd "${SLURM_SUBMIT_DIR}"
source .venv/bin/activate

export MASTER_ADDR=$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)
export MASTER_PORT=$((15000 + SLURM_JOB_ID % 5000))

export NCCL_SOCKET_IFNAME=ib0
export NCCL_IB_DISABLE=0
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export OMP_NUM_THREADS=16

# backend cpu:gloo,cuda:nccl; gloo carries the asynchronous checkpoints
srun --kill-on-bad-exit=1 torchrun \
    --nnodes="${SLURM_NNODES}" --nproc-per-node=4 \
    --rdzv-backend=c10d --rdzv-id="${SLURM_JOB_ID}" \
    --rdzv-endpoint="${MASTER_ADDR}:${MASTER_PORT}" \
    train.py configs/13b_32gpu.toml
