#!/bin/bash
#SBATCH --job-name=ar-check
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --uenv=prgenv-gnu/25.11:v1
#SBATCH --view=default

export NCCL_NET="AWS Libfabric"
export NCCL_NET_PLUGIN="ofi"
export NCCL_CROSS_NIC=1
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_MR_CACHE_MONITOR=userfaultfd
export MPICH_GPU_SUPPORT_ENABLED=0
export NCCL_DEBUG=INFO
srun ./build/all_reduce_perf -b 8 -e 256M -f 2 -g 1
