#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
source ~/.conda/etc/profile.d/conda.sh; conda activate pl
srun python train.py
