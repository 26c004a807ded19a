#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=1 --gres=gpu:1 -p gpu
#SBATCH -J lbpm
export BENCHMARK_DIR=$HOME/lbpm/bench
singularity run --nv -B $BENCHMARK_DIR:/benchmark --pwd /benchmark docker://nvcr.io/hpc/lbpm:2020.10 ./run.sh
set -x
echo second try without the slurm starter
singularity run --nv -B $BENCHMARK_DIR:/benchmark --pwd /benchmark docker://nvcr.io/hpc/lbpm:2020.10 ./run2.sh
# run.sh:  mpirun --allow-run-as-root -np 2 -mca pml ucx -x UCX_TLS=sm,cuda_copy -report-bindings --tag-output $LBPM_DIR/bin/lbpm_color_simulator input.db
# run2.sh: the same with --mca plm ^slurm
