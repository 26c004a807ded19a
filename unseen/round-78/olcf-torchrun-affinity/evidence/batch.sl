#!/bin/bash
#SBATCH -A mat299
#SBATCH -N 1
#SBATCH -t 00:30:00
module load rocm/6.2.4 miniforge3
export MASTER_ADDR=$(hostname -i)
export MASTER_PORT=3442
# variant A
srun -N1 -n8 -c7 --gpus-per-task=1 --gpu-bind=closest python3 -u resnet.py --epochs 1
# variant B
srun --gpus-per-task=8 --gpu-bind=closest torchrun --nproc_per_node=8 --nnodes=1 --rdzv-id=$SLURM_JOBID \
     --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:3440 resnet.py --epochs 1
