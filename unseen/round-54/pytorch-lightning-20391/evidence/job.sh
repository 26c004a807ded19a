#!/bin/bash
#SBATCH --job-name=boring
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=3

source .venv/bin/activate
srun python train_lightning.py
