#!/bin/bash
#SBATCH --job-name=ddp_val
#SBATCH --account=project_2004411
#SBATCH --partition=gpusmall
#SBATCH --time=12:00:00
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:a100:2,nvme:32
#SBATCH --mail-type=ALL
module purge
module load pytorch/2.1
srun torchrun --standalone --nnodes=1 --nproc_per_node=2 ./parallel_train.py
