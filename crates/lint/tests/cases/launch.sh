#: fires unread-names unread-variable
export NCCL_TIMEOUT=1800
torchrun train.py
#: fires misspelt unread-variable
export NCCL_SOCKET_IFNAM=eth0
torchrun train.py
#: fires word-for-a-number misread-value
export NCCL_IB_DISABLE=true
torchrun train.py
#: fires localhost-on-two-nodes localhost-master
#SBATCH --nodes=2
export MASTER_ADDR=localhost
srun torchrun --nnodes=2 train.py
#: fires fallback localhost-master
export MASTER_ADDR=$(getent hosts head | awk '{print $1}' || echo localhost)
#: fires torchrun-per-task launcher-per-task
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
srun torchrun --nnodes=2 --nproc_per_node=8 train.py
#: fires more-processes-than-gpus processes-do-not-multiply
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
torchrun --nproc_per_node=8 train.py
#: fires other-number-of-nodes processes-do-not-multiply
#SBATCH --nodes=4
srun torchrun --nnodes=2 --nproc_per_node=8 train.py
#: fires same-node-rank node-rank-fixed
#SBATCH -N 2
srun torchrun --nnodes 2 --node_rank 0 --nproc_per_node 8 train.py
#: fires docker-with-four-gpus no-shared-memory
docker run --gpus '"device=0,1,2,3"' image python train.py
#: low fires port-of-all-jobs fixed-port
#SBATCH --gres=gpu:2
export MASTER_PORT=29500
#: low fires transport-off debugging-left-in
export NCCL_P2P_DISABLE=1
#: silent names-of-the-script
NCCL_VERSION=2.21.5-1
NCCL_HOME=/usr/local/nccl
NCCL_DEBUG_FLAG=1
export NCCL_IBEXT_DISABLE=1
# export NCCL_P2P_DISABLE=1
make install
#: silent localhost-on-one-node
NUM_NODES=1
export MASTER_ADDR=localhost
torchrun --nnodes=1 --nproc_per_node=8 train.py
#: silent computed-names
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_DEBUG=INFO
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv-endpoint=$MASTER_ADDR:29500 train.py
#: silent docker-with-shm
docker run --gpus all --shm-size=16g image python train.py
#: fires plain-python-in-a-shell processes-do-not-multiply job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
srun --wait=60 bash -c "python train.py --devices 8"
#: silent a-helper-in-python
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
srun python -c "import streaming; streaming.clean()"
srun torchrun --nnodes=2 --nproc-per-node=8 train.py
#: low fires gloo-is-left-out gloo-on-another-network job.sbatch
#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=4
export NCCL_SOCKET_IFNAME=ib0
srun torchrun --nnodes=8 --nproc-per-node=4 train.py
#: low silent gloo-named-too
#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=4
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
srun torchrun --nnodes=8 --nproc-per-node=4 train.py
#: fires accelerate-does-not-divide processes-do-not-multiply
#SBATCH --nodes=3
srun accelerate launch --num_machines 3 --num_processes 16 --machine_rank $SLURM_NODEID train.py
#: fires accelerate-counts-one-machine processes-do-not-multiply
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
srun accelerate launch --num_machines 4 --num_processes 8 --machine_rank $SLURM_NODEID train.py
#: silent accelerate-counts-the-job
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
srun bash -c 'accelerate launch --num_machines 4 --num_processes 32 --machine_rank $SLURM_NODEID train.py'
#: fires accelerate-at-localhost localhost-master
accelerate launch --num_machines 2 --num_processes 16 --main_process_ip 127.0.0.1 train.py
#: fires accelerate-with-one-machine-rank node-rank-fixed
#SBATCH --nodes=2
srun accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 train.py
#: fires deepspeed-with-more-than-there-is processes-do-not-multiply
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
deepspeed --num_gpus=8 train.py
#: fires deepspeed-per-task launcher-per-task
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
srun deepspeed --num_gpus 8 train.py
#: fires two-hosts-one-number node-rank-fixed
ssh node1 "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 train.py" &
ssh node2 "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 train.py"
#: silent two-hosts-two-numbers
ssh node1 "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 train.py" &
ssh node2 "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=1 train.py"
#: fires default-is-localhost localhost-master
#SBATCH --nodes=2
export MASTER_ADDR=${MASTER_ADDR:-localhost}
srun torchrun --nnodes=2 train.py
#: silent default-on-one-node
export MASTER_ADDR=${MASTER_ADDR:-localhost}
torchrun --nnodes=1 --nproc-per-node=8 train.py
#: fires adapter-without-locked-memory rdma-out-of-reach
docker run --gpus 8 --shm-size=16g --device=/dev/infiniband/uverbs0 image python train.py
#: silent adapter-with-locked-memory
docker run --gpus 8 --shm-size=16g --ulimit memlock=-1 --device=/dev/infiniband/uverbs0 image python train.py
#: fires blocking-launches debugging-left-in
export CUDA_LAUNCH_BLOCKING=1
torchrun train.py
#: fires number-out-of-range misread-value
export NCCL_BUFFSIZE=4M
torchrun train.py
#: low fires fixed-port-on-the-command-line fixed-port
#SBATCH --gres=gpu:2
torchrun --master-port=29500 --nproc-per-node=2 train.py
