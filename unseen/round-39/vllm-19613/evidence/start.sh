#!/bin/bash
# started on every node before ray
docker run --gpus all --network host --ipc host --privileged --ulimit memlock=-1 \
  -e VLLM_HOST_IP=$HOST_IP \
  -e NCCL_DEBUG=INFO \
  -e NCCL_SOCKET_IFNAME=bond0 \
  -e NCCL_BUFFSIZE=1073741824 \
  -e NCCL_NCHANNELS_PER_NET_PEER=4 \
  -v /data/models:/models vllm/vllm-openai:v0.9.1 \
  -c "ray start --block --address=10.40.7.11:6379"

# head only
vllm serve /models/llama-405b --tensor-parallel-size 8 --pipeline-parallel-size 2 --distributed-executor-backend ray
