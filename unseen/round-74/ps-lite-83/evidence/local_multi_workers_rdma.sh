#!/bin/bash
# usage: ./local_multi_workers_rdma.sh <workers> <servers> <bin>
ulimit -c 0
export DMLC_NUM_WORKER=$1
export DMLC_NUM_SERVER=$2
bin=$3
export DMLC_PS_ROOT_URI=192.168.44.8
export DMLC_PS_ROOT_PORT=8123
export DMLC_INTERFACE=ens2f0
export DMLC_ENABLE_RDMA=ibverbs
export PS_VERBOSE=1
export TEST_NUM_GPU_WORKER=0 TEST_NUM_GPU_SERVER=0
DMLC_ROLE=scheduler $bin & 
for i in $(seq $DMLC_NUM_SERVER); do DMLC_ROLE=server $bin & done
for i in $(seq $DMLC_NUM_WORKER); do DMLC_ROLE=worker $bin 1024000 100 1 & done
wait
