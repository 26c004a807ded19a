#!/bin/bash
module load nccl/2.18.1-cuda11.8
NODE_RANK=$SLURM_NODEID
echo "Node $(hostname -s) has rank $NODE_RANK"
echo MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT
python -m torch.distributed.run --nproc_per_node 2 --nnodes 4 --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR --master_port $MASTER_PORT \
    train.py --data fields.yaml --weights yolov5s.pt --img 2048 --batch-size 16 --epochs 100 --sync-bn
