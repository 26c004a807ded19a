# 2 nodes, each 8 x A100 80G, 96 cores, 512 GB
python -m openrlhf.cli.train_ppo_ray --ref_num_nodes 2 --ref_num_gpus_per_node 8 --actor_num_nodes 2 --actor_num_gpus_per_node 8 \
  --vllm_num_engines 16 --vllm_tensor_parallel_size 1 --colocate_all_models --vllm_enable_sleep --vllm_gpu_memory_utilization 0.5 \
  --vllm_sync_backend nccl --pretrain $MODEL_PATH --zero_stage 1 --bf16 --advantage_estimator group_norm
