#!/bin/bash
#SBATCH --job-name=lwfa_mdev
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=6
#SBATCH --gres=gpu:8
#SBATCH --mem=64G
#SBATCH --time=01:00:00
#SBATCH -o slurm-%j.out

module load rocm/4.3.1
export OMPI_MCA_io=^ompio
export CONT=/lustre/plasma/containers/picongpu-rocm43.sif

# LaserWakefield, 8.cfg: 1x8x1 devices, 192x2048x160 cells
srun --export=ALL singularity exec --rocm -B /lustre $CONT \
     /lustre/plasma/runs/lwfa/bin/picongpu -d 1 8 1 -g 192 2048 160 -s 4000 -m --windowMovePoint 0.9 \
     --e_png.period 100 --e_png.axis yx --e_png.slicePoint 0.5 --e_png.folder pngElectronsYX
