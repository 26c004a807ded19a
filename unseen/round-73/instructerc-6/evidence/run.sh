deepspeed --master_port=29500 main_new.py --dataset iemocap --model_name_or_path /models/Llama-2-7b-hf --data_dir data_utils/out --output_dir exp/llama2 \
  --max_length 1200 --batch_size 1 --deepspeed_config ./code/data_utils/deepspeed_config.json --gradient_accumulation_steps 8 --learning_rate 2e-5 --do_train True --statistic_mode False --lora True
