# DeepSeek-V4-Flash 43 layers, 4 nodes x 8 MI308X
ray job submit -- python3 train.py \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --context-parallel-size 8 --allgather-cp \
  --seq-length 131072 --micro-batch-size 1 --global-batch-size 32 \
  --num-rollout 200 --rollout-batch-size 32
