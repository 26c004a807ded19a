CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=4 MAX_PIXELS=602112 \
swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --train_type full \
  --freeze_vit true --freeze_aligner false --freeze_llm false \
  --dataset ./charts.jsonl --torch_dtype bfloat16 --deepspeed zero3 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \
  --learning_rate 1e-5 --gradient_checkpointing true --logging_steps 5
