#!/bin/bash
#SBATCH -A geo160
#SBATCH -J simmim-giant
#SBATCH -N 2
#SBATCH -t 02:00:00
#SBATCH -p batch

module load PrgEnv-gnu rocm/6.0.0 craype-accel-amd-gfx90a
source activate /lustre/orion/geo160/proj-shared/envs/caney
export MASTER_ADDR=$(hostname -i)
export MASTER_PORT=29500
export NCCL_SOCKET_IFNAME=hsn0
export OMP_NUM_THREADS=1

srun -N 2 -n 8 --ntasks-per-node=4 --gpus-per-task=1 --gpu-bind=closest \
  python -u pytorch-caney/pytorch_caney/pipelines/pretraining/mim_deepspeed.py \
  --cfg mim_pretrain_swinv2_satvision_giant_192.yaml --dataset MODIS --data-paths /lustre/orion/geo160/proj-shared/mosaic-v2/shards --batch-size 64 --enable-amp --use-ddp webdataset
