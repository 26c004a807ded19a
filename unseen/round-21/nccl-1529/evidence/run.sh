# one host, four GPUs
docker run -d --name a --network host --ipc host --gpus '"device=0,1"' lf:0.9 bash -lc "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=10.33.18.34 MASTER_PORT=29501 llamafactory-cli train sft.yaml"
docker run -d --name b --network host --ipc host --gpus '"device=2,3"' lf:0.9 bash -lc "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=1 MASTER_ADDR=10.33.18.34 MASTER_PORT=29501 llamafactory-cli train sft.yaml"
