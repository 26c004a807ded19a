#!/bin/bash
#SBATCH -p gpu
#SBATCH -J lwfa_8dev
#SBATCH --nodes=1
#SBATCH --ntasks=8
#SBATCH --gres=gpu:8
#SBATCH --mem-per-cpu=4096
#SBATCH --cpus-per-task=1
export OMPI_MCA_io=^ompio
srun --mpi=pmix singularity exec --bind /lustre --rocm pic_rocm431.sif ./pog.sh -d 1 8 1 -g 192 2048 160 -s 4000
