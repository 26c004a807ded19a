#!/bin/bash -l
#SBATCH --job-name=hvd_hello
#SBATCH --time=00:30:00
#SBATCH --nodes=8
#SBATCH --constraint=gpu

source $HOME/venvs/hvd/bin/activate
srun -N 8 -n 8 python hello.py
deactivate
