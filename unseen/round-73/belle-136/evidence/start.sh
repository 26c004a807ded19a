#!/bin/bash
docker run -it --rm --gpus all \
    -v /data1/belle:/workspace -w /workspace \
    --name belle_ft pytorch/pytorch:2.0.0-cuda11.7-cudnn8-devel \
    bash -lc "pip install -r requirements.txt && torchrun --nproc_per_node=4 finetune.py --model_config_file run_config/Llama_config.json --deepspeed run_config/deepspeed_config.json"
