#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=rtx8000:1
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-gpu=16G
#SBATCH --time=00:15:00
module --quiet load anaconda/3
conda activate pytorch
export MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))
export MASTER_ADDR="127.0.0.1"
srun python main.py

$ srun --jobid=4811901 --overlap nvidia-smi -L
GPU 0: Quadro RTX 8000 (UUID: GPU-7b2a0b0e-1f8d-4d04-9c9d-3f6f7b0c1d11)
GPU 0: Quadro RTX 8000 (UUID: GPU-0c61d5a2-8f3a-41c4-8a3a-24b31c97a0e5)
GPU 0: Quadro RTX 8000 (UUID: GPU-f00e9c1d-9c7e-42f0-bf6d-90a1d51a7f0b)
GPU 0: Quadro RTX 8000 (UUID: GPU-95d0aa47-6e5b-4be9-8f2c-a0d8d1a4b6c3)
