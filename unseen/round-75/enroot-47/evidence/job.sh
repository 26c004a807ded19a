#!/bin/bash
#SBATCH -p gpu -N 1 --ntasks-per-node=2 --gres=gpu:2 -t 4:00:00
export ENROOT_DATA_PATH=/scratch/$USER/enroot
# imported from nvcr.io#hpc/gromacs:2020.2
srun enroot start --rw -m $PWD:/host_pwd gromacs:2020.2 gmx mdrun -ntmpi 1 -nb gpu -pme gpu -s /host_pwd/topol.tpr
