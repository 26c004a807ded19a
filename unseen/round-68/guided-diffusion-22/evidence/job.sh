#!/bin/bash
#SBATCH -p gpu
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
#SBATCH --time=2-00:00:00
set -x
scontrol show hostnames $SLURM_JOB_NODELIST
export NCCL_DEBUG=INFO
mpiexec --oversubscribe -host localhost -n 16 python scripts/image_train.py $DATA $MODEL_FLAGS $TRAIN_FLAGS
