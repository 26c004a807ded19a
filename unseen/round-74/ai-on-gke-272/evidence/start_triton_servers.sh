#!/bin/bash
set -e
# engines were built with convert/build in an init container, see /all_models/engines/2-gpu
/opt/tritonserver/bin/tritonserver \
  --model-repository=/all_models/inflight_batcher_llm \
  --disable-auto-complete-config \
  --backend-config=python,shm-region-prefix-name=prefix0_ \
  --log-verbose=0
