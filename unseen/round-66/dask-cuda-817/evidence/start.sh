#!/bin/bash
#SBATCH --constraint=gpu
#SBATCH --nodes=2
#SBATCH --gpus=8
#SBATCH --ntasks-per-node=1
export UCXPY_LOG_LEVEL=DEBUG
F=scheduler-$SLURM_JOB_ID.json
dask-scheduler --scheduler-file $F --protocol ucx --interface hsn0 &
sleep 5
srun dask-cuda-worker --scheduler-file $F --nthreads 1 --local-directory /tmp &
python merge_bench.py --scheduler-file $F
