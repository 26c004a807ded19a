# gpu-a and gpu-b have 8 cards each, half of each box is ours this week: 0-3
# gpu-a: NODE_RANK=0   gpu-b: NODE_RANK=1
python -m torch.distributed.launch --nnodes=2 --node_rank=$NODE_RANK \
    --master_addr=172.20.3.11 --master_port=29520 --nproc_per_node=4 \
    tools/train.py configs/mask2former/m2f_swin-b.py --launcher pytorch --work-dir wd/m2f
