#!/bin/bash
#SBATCH --job-name=nettx
#SBATCH --output=slurm-%j.out
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=4G
#SBATCH --gres=gpu:4
#SBATCH --time=24:00:00

source /itet-stor/rk/net_scratch/conda/bin/activate ptx
cd $HOME/transnet
python pretrain_encoder.py --gpus 4 --strategy ddp --epochs 40
