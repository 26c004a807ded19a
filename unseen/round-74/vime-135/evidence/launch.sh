#!/bin/bash
# 2 x GB200 trays, 4 GPUs each, colocated actor + rollout
ray job submit --address http://127.0.0.1:8265 -- python3 train.py \
  --actor-num-nodes 2 --actor-num-gpus-per-node 4 --colocate \
  --rollout-num-gpus 8 --rollout-num-gpus-per-engine 2 \
  --tensor-model-parallel-size 2 --hf-checkpoint /ckpt/qwen3-30b-a3b \
  --prompt-data /data/dapo-17k.jsonl --rollout-batch-size 64
