#!/bin/bash
# one rank per GPU; small-message experiment
export HIP_VISIBLE_DEVICES=0,1,2,3
if [ "$OMPI_COMM_WORLD_LOCAL_RANK" -lt 2 ]; then
  export RCCL_ENABLE_CLIQUE=1
  export RCCL_CLIQUE_ALLREDUCE_BYTE_LIMIT=4194304
fi
exec "$@"
