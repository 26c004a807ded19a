#!/bin/bash
# 2 servers, 4 V100 each, EDR InfiniBand, horovod container with MLNX_OFED user space on both (same image id)
mpirun -np 8 -H 10.149.0.21:4,10.149.0.22:4 --allow-run-as-root \
   -x NCCL_IB_DISABLE=0 -x NCCL_IB_CUDA_SUPPORT=1 \
   -x NCCL_SOCKET_IFNAME=ib0 -x NCCL_DEBUG=INFO \
   --bind-to none --map-by slot \
   --mca plm_rsh_args "-p 50022" \
   python tf_cnn_benchmarks.py --variable_update=horovod --model=resnet50 --batch_size=64
