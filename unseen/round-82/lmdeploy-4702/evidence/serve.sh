lmdeploy serve api_server Qwen/Qwen3-32B-FP8 --backend pytorch --dp 2 --tp 4 --server-port 23333
