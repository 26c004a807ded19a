#!/bin/bash
#SBATCH -J seis_gpu
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
module load singularity/3.7.0 openmpi/4.0.5
mpirun -np 4 singularity exec --nv seissol_gpu.sif ./SeisSol_dsm70_cuda parameters.par
