#!/bin/bash
docker run --gpus=all --rm -d --name triton-ctr \
  -p 8005:8000 -p 8006:8001 -p 8007:8002 \
  -v /srv/models:/models \
  nvcr.io/nvidia/merlin/merlin-inference:22.04 \
  tritonserver --model-repository=/models --load-model=wdl --model-control-mode=explicit --backend-directory=/usr/local/hugectr/backends --backend-config=hugectr,ps=/models/ps.json
