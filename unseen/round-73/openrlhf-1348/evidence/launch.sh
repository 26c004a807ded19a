ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray \
  --actor_num_nodes 1 --actor_num_gpus_per_node 4 --vllm_num_engines 1 --vllm_tensor_parallel_size 4 \
  --colocate_all_models --vllm_enable_sleep --deepspeed_enable_sleep --vllm_sync_backend nccl \
  --pretrain /models/qwen3.5-27B --zero_stage 3 --bf16 --lora_rank 64 --lora_alpha 64 \
  --gradient_checkpointing --advantage_estimator group_norm --n_samples_per_prompt 8 --remote_rm_url reward.py
