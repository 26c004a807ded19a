#!/bin/bash
#SBATCH -A m3910_g
#SBATCH -C gpu
#SBATCH -q regular
#SBATCH -t 2:00:00
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH -c 32
#SBATCH --gpus-per-task=1

export SLURM_CPU_BIND="cores"
export JDFTX_MEMPOOL_SIZE=36000
export MPICH_GPU_SUPPORT_ENABLED=1

srun jdftx_gpu -i relax.in -o relax.out
