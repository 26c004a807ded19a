export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1      # site default, module file
ray start --head --num-gpus 8 --disable-usage-stats
ray job submit --address=http://127.0.0.1:8265 --runtime-env-json='{"working_dir": "/proj/rlhf"}' -- \
  python3 -m openrlhf.cli.train_ppo_ray \
  --ref_num_nodes 1 --ref_num_gpus_per_node 2 --actor_num_nodes 1 --actor_num_gpus_per_node 2 \
  --vllm_num_engines 4 --vllm_tensor_parallel_size 1 --vllm_gpu_memory_utilization 0.6 \
  --pretrain /proj/models/Llama-3-8b-sft --advantage_estimator reinforce --zero_stage 3 --bf16
