#!/bin/bash
#SBATCH -J ez-ff
#SBATCH -N 1
#SBATCH --ntasks=8            # two trainings of 4 GPUs side by side, second one commented out for now
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=8
export MASTER_ADDR=$(hostname) MASTER_PORT=29617
srun -n 4 --gres=gpu:4 --exact enerzyme train -c configs/ff.yaml -o runs/ff &
#srun -n 4 --gres=gpu:4 --exact enerzyme train -c configs/ff2.yaml -o runs/ff2 &
wait
