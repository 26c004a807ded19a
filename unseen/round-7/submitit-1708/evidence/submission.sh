#!/bin/bash

# Parameters
#SBATCH --constraint=tesla_v100
#SBATCH --cpus-per-task=10
#SBATCH --error=/home/o/ckpt/%j/%j_0_log.err
#SBATCH --gpus-per-node=4
#SBATCH --job-name=vit_s
#SBATCH --mem=450GB
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --open-mode=append
#SBATCH --output=/home/o/ckpt/%j/%j_0_log.out
#SBATCH --signal=USR2@120
#SBATCH --time=1440
#SBATCH --wckey=submitit

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /home/o/ckpt/%j/%j_%t_log.out --error /home/o/ckpt/%j/%j_%t_log.err python -u -m submitit.core._submit /home/o/ckpt/%j
