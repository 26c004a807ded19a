cd /root/nccl-tests/build
echo "${NODES_IPS}" > hostfile
mpirun --allow-run-as-root --hostfile hostfile \
  -n $((NODES_NUM * GPUS_PER_NODE)) -N ${GPUS_PER_NODE} \
  --bind-to none ./all_reduce_perf -b 8 -e 8G -f 2 -g 1
