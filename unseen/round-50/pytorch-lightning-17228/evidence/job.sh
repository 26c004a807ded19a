#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# hosts in the order given by the topology script (rack by rack)
export SLURM_HOSTFILE=$PWD/ordered_hosts.txt
echo "SLURM_NODELIST in sbatch"
uniq $SLURM_HOSTFILE | paste -sd,
srun --distribution=arbitrary -l python -u train_fabric.py --devices 8 --num-nodes 4
