#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=1
#SBATCH --tasks=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=10
#SBATCH --time=24:00:00

srun --unbuffered python train.py trainer.accelerator=gpu trainer.devices=8 trainer.num_nodes=1 trainer.strategy=ddp
