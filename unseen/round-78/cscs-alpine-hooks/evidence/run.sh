#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-node=4 -t 00:20:00
srun -l --environment=./stencil.toml ./stencil3d --nx 2048 --ny 2048 --nz 1024 --steps 500
