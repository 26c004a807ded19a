#!/bin/bash
mpirun --allow-run-as-root --hostfile iplist-16 -np 128 --map-by ppr:8:node \
  --mca btl_tcp_if_include bond0 \
  -x NCCL_SOCKET_IFNAME=bond0 -x NCCL_IB_HCA=mlx5_bond -x NCCL_IB_GID_INDEX=3 \
  -x NCCL_IB_QPS_PER_CONNECTION=2 -x NCCL_IB_SL=5 -x NCCL_IB_TC=136 -x NCCL_IB_TIMEOUT=22 \
  -x NCCL_NET_PLUGIN=none -x NCCL_MIN_NCHANNELS=4 -x NCCL_NVLS_ENABLE=1 -x NCCL_CUMEM_ENABLE=1 \
  -x NCCL_DEBUG=INFO -x LD_PRELOAD=/data/nccl-2.19.3/libnccl.so.2 \
  /usr/local/bin/alltoall_perf -b 4K -e 4M -f 2 -g 1 -n 300
