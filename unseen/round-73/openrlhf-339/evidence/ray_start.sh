# node 0 (10.128.4.10)
ray start --head --node-ip-address 0.0.0.0 --num-gpus 8
# node 1, node 2 (10.128.4.11, 10.128.4.12)
ray start --address 10.128.4.10:6379 --num-gpus 8
