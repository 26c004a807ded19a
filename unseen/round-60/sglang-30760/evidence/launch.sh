python3 -m sglang.launch_server --model-path /models/GLM-FP8 --tp 4 --pp-size 1 --dp-size 1 --ep-size 1 \
  --speculative-algorithm EAGLE --enable-hierarchical-cache --hicache-storage-backend mooncake \
  --hicache-storage-prefetch-policy timeout --hicache-ratio 2 --host 0.0.0.0 --port 30000
