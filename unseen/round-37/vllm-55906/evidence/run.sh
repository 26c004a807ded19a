docker run -d --name pd-prefill --gpus '"device=0,1"' --network host --ipc host \
  -e CUDA_VISIBLE_DEVICES=0 -e UCX_LOG_LEVEL=debug -e UCX_PROTO_INFO=y -e VLLM_NIXL_SIDE_CHANNEL_PORT=5600 \
  vllm/vllm-openai:v0.28.0 Qwen/Qwen3-0.6B --port 8100 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
docker run -d --name pd-decode --gpus '"device=0,1"' --network host --ipc host \
  -e CUDA_VISIBLE_DEVICES=1 -e UCX_LOG_LEVEL=debug -e UCX_PROTO_INFO=y -e VLLM_NIXL_SIDE_CHANNEL_PORT=5601 \
  vllm/vllm-openai:v0.28.0 Qwen/Qwen3-0.6B --port 8200 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
