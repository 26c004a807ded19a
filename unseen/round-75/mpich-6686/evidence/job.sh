#!/bin/bash
#SBATCH -C cpu
#SBATCH -N 1
#SBATCH --ntasks-per-node=4
#SBATCH -q debug
#SBATCH -t 5
export LD_LIBRARY_PATH=$HOME/sw/mpich/lib:$LD_LIBRARY_PATH
srun --mpi=pmi2 ./hydro
# note: hydro.c has no GPU code. The library was configured on a login node:
# ./configure --prefix=$HOME/sw/mpich --with-device=ch4:ofi --with-pm=none --with-pmi=slurm
