#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1
export MASTER_ADDR=localhost
export MASTER_PORT=12355
export WORLD_SIZE=2
export RANK=0
python3 run_speech_recognition_seq2seq_streaming.py \
	--model_name_or_path="openai/whisper-small" --dataset_name="local/kss" --language="korean" \
	--max_steps="5000" --output_dir="./whisper-small-ko" --per_device_train_batch_size="32" \
	--gradient_checkpointing --fp16 --do_train --do_eval --streaming
