docker run -it --rm --gpus all --network host --shm-size 16g \
  --device /dev/infiniband/uverbs0 --device /dev/infiniband/uverbs1 --device /dev/infiniband/rdma_cm \
  -v /data/mscclpp:/root/mscclpp ghcr.io/microsoft/mscclpp/mscclpp:base-cuda12.3 bash
