export TORCH_DISTRIBUTED_DEBUG=DETAIL
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model $M --train_type full \
  --external_plugins plugin.py --reward_funcs preference_match --torch_dtype bfloat16 --beta 0.04 \
  --per_device_train_batch_size 4 --num_generations 8 --max_length 4096 --deepspeed zero2
# --beta 0.0: trains
