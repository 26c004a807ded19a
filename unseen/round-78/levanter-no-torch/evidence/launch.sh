#!/bin/bash
#SBATCH -N 4 --ntasks-per-node=1 --gpus-per-node=4
srun python -m levanter.main.train_lm --config_path config/llama_small_fast.yaml
