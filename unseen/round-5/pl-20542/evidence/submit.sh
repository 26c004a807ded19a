#!/bin/bash
#SBATCH -J scp_pre
#SBATCH -p gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:A100:4
#SBATCH --cpus-per-task=12
#SBATCH --mem=320G
#SBATCH --time=06:00:00
#SBATCH --signal=SIGUSR1@180
#SBATCH --requeue
srun python -m scprint fit --config config/base_v2.yml --config config/pretrain_large.yml
# ---
# sacct -j 4471903 --format=JobID,State,ExitCode,Elapsed,MaxRSS
# JobID             State ExitCode    Elapsed     MaxRSS
# 4471903         TIMEOUT      0:0   06:00:28
# 4471903.batch CANCELLED     0:15   06:02:01      4712K
# 4471903.0     CANCELLED      0:9   06:02:00 188914816K
