#!/bin/bash
set -e -o pipefail
PLUGIN_IMAGE=us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.7
RXDM_IMAGE=us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.13_1
mkdir -p /var/lib/tcpxo/lib64
docker run --rm --name receive-datapath-manager-installer \
  -v /var/lib:/var/lib ${PLUGIN_IMAGE} install
docker run --detach --rm --pull=always --name receive-datapath-manager-${SLURM_JOB_ID} \
  --privileged --cap-add=NET_ADMIN --network=host --gpus all \
  -v /var/lib/nvidia/lib64:/usr/local/nvidia/lib64 ${RXDM_IMAGE} \
  --num_hops=2 --num_nics=8 --uid= --alsologtostderr
