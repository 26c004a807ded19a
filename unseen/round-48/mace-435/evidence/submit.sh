#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --mem=100G
#SBATCH --time=24:00:00
#SBATCH --job-name=mace8

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

srun mace_run_train --distributed --config run8.yaml
