# the same on both nodes, no SLURM; NODE_RANK is 0 on the first and 1 on the second
export MASTER_ADDR=10.4.0.11 MASTER_PORT=29501
NODE_RANK=$1 python train.py --gpus 4 --num_nodes 2 --accelerator ddp
