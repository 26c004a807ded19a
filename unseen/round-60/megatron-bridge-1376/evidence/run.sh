torchrun --nnodes=4 --nproc-per-node=8 ... finetune_lora.py --model Qwen3-Coder-480B-A35B-Instruct \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 \
  --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 \
  --micro-batch-size 1 --lora-target linear_qkv,linear_proj,linear_fc1,linear_fc2
