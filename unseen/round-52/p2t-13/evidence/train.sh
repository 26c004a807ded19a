#!/bin/bash
# 8 x V100
python -m torch.distributed.launch --nproc_per_node=8 --use_env main.py \
    --model p2t_tiny --batch-size 128 --data-path /data/imagenet --output_dir work_dirs/p2t_tiny --dist-eval --epochs 300
