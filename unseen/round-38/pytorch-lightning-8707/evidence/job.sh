#!/bin/bash

#SBATCH --time=00:10:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --gpus=8
#SBATCH --mem-per-cpu=1536M
#SBATCH --qos=test

export OMP_NUM_THREADS=$SLURM_CPUS_ON_NODE

module load python/3.8
module load cuda/10.1

source ~/venvs/pl/bin/activate

cd ~/pltest/

python test.py
