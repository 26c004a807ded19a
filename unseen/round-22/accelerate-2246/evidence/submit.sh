#!/bin/bash
#SBATCH -A p322
#SBATCH -p gengpu
#SBATCH --nodes=2
#SBATCH --gres=gpu:a100:2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
srun bash -c "accelerate launch --multi_gpu --num_processes 8 --num_machines 4 --machine_rank \$SLURM_PROCID --main_process_ip $MASTER_ADDR --main_process_port 29510 train.py"
