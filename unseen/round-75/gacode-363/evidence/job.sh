#!/bin/bash -l
#SBATCH -A mp94
#SBATCH -C gpu
#SBATCH -q regular
#SBATCH -N 2
#SBATCH -t 00:30:00
#SBATCH --exclusive
export SLURM_CPU_BIND="cores"
export MPICH_GPU_SUPPORT_ENABLED=1
export OMP_NUM_THREADS=8
srun -N 2 -n 8 --ntasks-per-node=4 -c 32 $GACODE_ROOT/cgyro/src/cgyro
