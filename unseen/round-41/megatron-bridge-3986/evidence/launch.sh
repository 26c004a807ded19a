# one pod per node, 4 nodes x 8 B200, Ethernet sockets, started by SkyPilot
export TORCH_DISTRIBUTED_DEBUG=DETAIL
export NCCL_SOCKET_IFNAME=eth0
export HF_HOME=/root/.cache/huggingface
export TP=4 CP=2 PP=1 EP=8 SEQ_LEN=16384 GLOBAL_BATCH=8 MICRO_BATCH=1
torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=8 --node_rank=$SKYPILOT_NODE_RANK \
   --master_addr=$HEAD_IP --master_port=8008 cpt_lora.py
