python3 ~/dgl/tools/launch.py --workspace /efs/dgl/examples/pytorch/graphsage/dist/ --num_trainers 2 --num_samplers 0 --num_servers 1 --part_config data/ogb-product.json --ip_config ip_config.txt \
  "python3 train_dist.py --graph_name ogb-product --ip_config ip_config.txt --num_epochs 1 --batch_size 1024 --num_gpus 2 --eval_every 5 --log_every 1"
