#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --time=00:30:00

export OMPI_MCA_pml=ob1
export OMPI_MCA_btl=self,vader,smcuda
srun nvidia-smi -L
srun julia --project=test test/halo_exchange_gpu.jl
