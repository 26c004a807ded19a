#!/bin/bash
#SBATCH --account=nn1204k
#SBATCH --partition=accel
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=72
#SBATCH --time=00:10:00
module load PrgEnv-gnu cudatoolkit craype-accel-nvidia90
export MPICH_GPU_SUPPORT_ENABLED=1
export JULIA_CUDA_MEMORY_POOL=none
srun julia --project ring_multigpu.jl
