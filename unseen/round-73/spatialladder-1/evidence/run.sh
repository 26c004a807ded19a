export TORCH_DISTRIBUTED_DEBUG=DETAIL
torchrun --nproc_per_node=4 --nnodes=1 --master_port=12351 src/open_r1/grpo_spld_stage3.py \
  --model_name_or_path ckpt/stage2 --per_device_train_batch_size 2 --num_generations 4 \
  --deepspeed local_scripts/zero3.json --bf16 --max_prompt_length 16384 --max_completion_length 1024
