#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH --time=00:20:00
set -x
module load OpenMPI/5.0.3
srun --mpi=list
mpirun -np 4 ./hello
srun -n 4 ./hello
srun --mpi=pmi2 -n 4 ./hello
srun -n 4 ./all_reduce_perf -b 1M -e 64M -f 4 -g 1
