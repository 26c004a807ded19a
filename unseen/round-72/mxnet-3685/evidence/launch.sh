#!/bin/bash
# run from lenz-a; both machines share /home over NFS
export DMLC_INTERFACE=em2
export PS_VERBOSE=2
cat hosts
# 141.76.33.21
# 141.76.33.22
../../tools/launch.py --launcher ssh -n 2 -s 2 -H hosts \
    python train_mnist.py --network mlp --gpus 0,1 --kv-store dist_sync
