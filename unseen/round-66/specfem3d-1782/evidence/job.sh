#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=8
# DATA/Par_file: NPROC = 2, NUMBER_OF_SIMULTANEOUS_RUNS = 2, GPU_MODE = .true.
module load gcc/10.1.0 openmpi cuda
mpirun -np 4 ./bin/xspecfem3D
