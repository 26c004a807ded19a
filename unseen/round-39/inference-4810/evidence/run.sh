# machine A (192.168.100.1)
docker run -d --ipc=host --shm-size 32G --gpus all --network host --name xinference-supervisor \
  xprobe/xinference:v2.5.0-aarch64 xinference-supervisor -H 192.168.100.1 --port 9997
docker run -d --ipc=host --shm-size 32G --gpus all --network host --name xinference-worker \
  -e VLLM_WORKER_MULTIPROC_METHOD=spawn -e VLLM_HOST_IP=192.168.100.1 \
  -e NCCL_SOCKET_IFNAME=enp1s0f1np1 -e GLOO_SOCKET_IFNAME=enp1s0f1np1 -e NCCL_IB_DISABLE=1 \
  xprobe/xinference:v2.5.0-aarch64 xinference-worker -e http://192.168.100.1:9997 -H 192.168.100.1
# machine B (192.168.100.2): the same worker command with -H 192.168.100.2 and VLLM_HOST_IP=192.168.100.2
