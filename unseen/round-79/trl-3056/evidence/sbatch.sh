#!/bin/bash
#SBATCH --gpus-per-node=4
srun torchrun --nproc_per_node 4 sft.py --per_device_train_batch_size 8 --max_seq_length 1024 --packing False
