deepspeed --master_port=10086 --include localhost:0,1,2,3 src/training/train.py \
    --deepspeed scripts/zero3_offload.json \
    --model_id Qwen/Qwen2-VL-7B-Instruct \
    --data_path /data/mix/text_and_image_100k.json --image_folder / \
    --freeze_vision_tower True --freeze_llm False --tune_merger True \
    --bf16 True --fp16 False --disable_flash_attn2 False \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 8 \
    --image_min_pixels $((512 * 28 * 28)) --image_max_pixels $((1280 * 28 * 28)) \
    --learning_rate 1e-5 --gradient_checkpointing True --lazy_preprocess True --dataloader_num_workers 4 --logging_steps 1
