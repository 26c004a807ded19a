NPROC_PER_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct \
  --train_type full --torch_dtype bfloat16 --deepspeed zero3 \
  --dataset AI-MO/NuminaMath-TIR --reward_funcs accuracy \
  --num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 1 \
  --beta 0.04 --learning_rate 1e-6 --max_completion_length 1024 --logging_steps 1
