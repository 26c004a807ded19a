accelerate launch --config_file accelerate_configs/deepspeed.yaml --gpu_ids 0,1,2,3 training/cogvideox_image_to_video_lora.py \
  --pretrained_model_name_or_path THUDM/CogVideoX1.5-5B-I2V \
  --validation_epochs 1 --num_validation_videos 2 --train_batch_size 1 \
  --nccl_timeout 1800 --mixed_precision bf16 --gradient_checkpointing
