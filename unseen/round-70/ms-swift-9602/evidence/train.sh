PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' NCCL_DEBUG=INFO \
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3.5-35B-A3B --load_safetensors true \
    --dataset /data/sft.jsonl --tensor_model_parallel_size 2 --pipeline_model_parallel_size 1 \
    --expert_model_parallel_size 4 --micro_batch_size 1 --global_batch_size 16 \
    --max_length 16384 --recompute_granularity selective --lr 1e-5 --num_train_epochs 1
