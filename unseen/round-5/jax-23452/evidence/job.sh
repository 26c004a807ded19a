#!/bin/bash
#SBATCH -p gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-task=1
#SBATCH --time=0-00:20:00
#SBATCH --mem-per-cpu=32G
#SBATCH --constraint=a100-40gb

module load cuda/12.3.2
conda activate vmc

srun bash -c 'echo "[$SLURM_PROCID] $(nvidia-smi -L)"' > gpus.txt
srun --cpu-bind=socket python $1
