nohup accelerate launch --config_file config.yaml src/train_bash.py \
    --stage sft --do_train --quantization_bit 4 \
    --model_name_or_path /data/models/Qwen1.5-7B-Chat --template qwen \
    --finetuning_type lora --per_device_train_batch_size 4 \
    --num_train_epochs 5 --bf16 > logs/sft.log 2>&1 &
