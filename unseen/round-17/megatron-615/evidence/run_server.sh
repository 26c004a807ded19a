#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
export MASTER_ADDR=localhost MASTER_PORT=6000
export WORLD_SIZE=2 RANK=0 LOCAL_RANK=0
python tools/run_text_generation_server.py \
       --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 \
       --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
       --load ckpt/gpt_345m_tp2 --max-position-embeddings 1024 --seq-length 1024 \
       --tokenizer-type GPT2BPETokenizer --fp16 --micro-batch-size 1 \
       --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --out-seq-length 512 --seed 42
