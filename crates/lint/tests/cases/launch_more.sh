#: fires hostname-lookup-with-a-fallback localhost-master job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$(hostname -i 2>/dev/null | cut -d' ' -f1 || echo 127.0.0.1)
srun torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:29400 train.py
#: fires address-in-a-variable-of-another-name localhost-master
#!/bin/bash
NNODES=2
GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py
#: silent address-in-a-variable-of-one-node
#!/bin/bash
NNODES=1
GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank 0 --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py
#: fires arguments-in-an-array localhost-master
#!/bin/bash
DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes 4
    --master_addr localhost
    --master_port 6000
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py
#: fires standalone-on-several-nodes localhost-master|node-rank-fixed job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun torchrun --standalone --nproc_per_node=4 train.py
#: silent standalone-on-one-node job.sbatch
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun torchrun --standalone --nproc_per_node=4 train.py
#: fires node-rank-in-the-batch-step node-rank-fixed job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
export NODE_RANK=$SLURM_NODEID
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --node_rank=$NODE_RANK --nproc_per_node=8 --master_addr=$MASTER_ADDR train.py
#: fires node-rank-is-expanded-once node-rank-fixed job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
srun --ntasks-per-node=1 bash -c "torchrun --nnodes=2 --node_rank=$SLURM_NODEID --nproc_per_node=8 --master_addr=$MASTER_ADDR train.py"
#: silent node-rank-is-expanded-in-each-task job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
srun --ntasks-per-node=1 bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --nproc_per_node=8 --master_addr=$MASTER_ADDR train.py'
#: fires torchrun-without-srun processes-do-not-multiply job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
MASTER=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$MASTER:29500 train.py
#: fires fewer-tasks-than-gpus processes-do-not-multiply job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=8
srun python train.py --trainer.num_nodes=2 --trainer.devices=8
#: fires lightning-nodes-differ processes-do-not-multiply job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun python train.py --trainer.num_nodes 2 --trainer.devices 8
#: silent lightning-fits job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun python train.py --trainer.num_nodes 4 --trainer.devices 8
#: fires srun-starts-torchrun-in-a-container launcher-per-task job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun --container-image=nvcr.io/nvidia/pytorch:24.07-py3 torchrun --nnodes=2 --nproc-per-node=8 train.py
#: fires tasks-in-a-script-of-srun launcher-per-task job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=16
#SBATCH --gpus-per-node=8
srun bash -c "torchrun --nnodes=2 --nproc-per-node=8 train.py"
#: fires mpirun-starts-torchrun launcher-per-task
#!/bin/bash
mpirun -np 16 --hostfile hosts torchrun --nnodes=2 --nproc_per_node=8 train.py
#: fires launcher-variable-of-the-whole-job launcher-per-task job.sbatch
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
LAUNCHER="torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d"
srun $LAUNCHER train.py
#: fires visible-gpus-are-fewer-than-processes processes-do-not-multiply
#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
torchrun --nproc_per_node=8 train.py
#: fires visible-gpus-before-the-command processes-do-not-multiply
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 4 train.py
#: silent visible-gpus-fit
#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
torchrun --nproc_per_node=4 train.py
#: fires deepspeed-ignores-visible-devices processes-do-not-multiply
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus=4 train.py
#: low fires two-jobs-on-one-port fixed-port
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 --master_port=29501 train.py --seed 1 &
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 --master_port=29501 train.py --seed 2 &
wait
#: low fires two-jobs-on-the-default-port fixed-port
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 train.py --seed 1 &
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 train.py --seed 2 &
wait
#: low silent two-jobs-on-two-ports
#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 --master_port=29501 train.py --seed 1 &
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 --master_port=29502 train.py --seed 2 &
wait
#: fires docker-of-all-gpus-without-shm no-shared-memory
docker run --rm --gpus all -v $PWD:/work nvcr.io/nvidia/pytorch:24.07-py3 torchrun --nproc_per_node=8 train.py
#: silent docker-of-all-gpus-with-the-ipc-of-the-host
docker run --rm --gpus all --ipc=host -v $PWD:/work nvcr.io/nvidia/pytorch:24.07-py3 torchrun --nproc_per_node=8 train.py
#: fires debugging-in-the-command-line debugging-left-in
CUDA_LAUNCH_BLOCKING=1 torchrun --nproc_per_node=8 train.py
#: low fires transport-off-for-one-command debugging-left-in
NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 torchrun --nproc_per_node=8 train.py
#: fires interface-of-nccl-and-not-of-gloo-in-mpirun gloo-on-another-network|unread-variable
mpirun -np 16 -x NCCL_SOCKET_IFNAME=bond0 -x NCCL_TIMEOUT=3600 python train.py
#: fires ranks-from-a-loop-with-one-number node-rank-fixed
#!/bin/bash
for host in node1 node2; do
    ssh $host "cd /work && torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=node1 train.py" &
done
wait
#: silent ranks-from-a-loop-that-counts
#!/bin/bash
i=0
for host in node1 node2; do
    ssh $host "cd /work && torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$i --master_addr=node1 train.py" &
    i=$((i+1))
done
wait
#: fires world-size-is-the-number-of-nodes processes-do-not-multiply job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
export WORLD_SIZE=$SLURM_NNODES
srun python train.py
#: fires rank-is-set-before-srun node-rank-fixed job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export RANK=$SLURM_PROCID
export LOCAL_RANK=$SLURM_LOCALID
srun python train.py
#: silent rank-is-set-within-srun job.sbatch
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; python train.py'
#: silent the-first-node-names-itself node0.sh
nnodes=2
nproc_per_node=4
torchrun --master_port 29500 --nproc_per_node=$nproc_per_node --nnodes=$nnodes --node_rank=0 --master_addr=127.0.0.1 train.py
#: fires known-name-that-is-not-exported unread-variable
#!/bin/bash
NCCL_IB_HCA=mlx5_0,mlx5_1
NCCL_SOCKET_IFNAME=ib0
torchrun --nnodes=1 --nproc_per_node=8 train.py
#: silent known-name-that-is-used
#!/bin/bash
NCCL_IB_HCA=mlx5_0,mlx5_1
docker run --gpus 8 --ipc=host --privileged -e NCCL_IB_HCA=$NCCL_IB_HCA image torchrun --nproc_per_node=8 train.py
#: silent known-name-exported-later
#!/bin/bash
NCCL_IB_HCA=mlx5_0,mlx5_1
NCCL_DEBUG=INFO
export NCCL_IB_HCA NCCL_DEBUG
torchrun --nproc_per_node=8 train.py
#: silent all-names-are-exported
#!/bin/bash
set -a
NCCL_IB_HCA=mlx5_0,mlx5_1
set +a
torchrun --nproc_per_node=8 train.py
#: fires docker-with-fewer-gpus-than-processes processes-do-not-multiply
docker run --gpus 4 --ipc=host image torchrun --nproc_per_node=8 train.py
#: fires docker-with-tiny-shared-memory no-shared-memory
docker run --gpus 8 --shm-size=64m image torchrun --nproc_per_node=8 train.py
#: fires interface-of-gloo-as-an-exclusion misread-value
export NCCL_SOCKET_IFNAME=^lo,docker0
export GLOO_SOCKET_IFNAME=^lo,docker0
torchrun --nnodes=$NNODES --nproc_per_node=8 train.py
#: fires address-as-an-interface misread-value
export NCCL_SOCKET_IFNAME=$(hostname -I | awk '{print $1}')
torchrun --nnodes=$NNODES --nproc_per_node=8 train.py
#: silent interface-found-by-its-address
IP=$(hostname -I | awk '{print $1}')
export NCCL_SOCKET_IFNAME=$(ip -o -4 addr show | grep "$IP" | awk '{print $2}')
torchrun --nnodes=$NNODES --nproc_per_node=8 train.py
#: fires master-is-where-it-was-submitted localhost-master
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$SLURM_SUBMIT_HOST
srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv-endpoint=$MASTER_ADDR:29500 --rdzv-backend=c10d train.py
#: fires doubled-letter-of-the-library unread-variable
export NCLL_DEBUG=INFO
torchrun --nproc-per-node=8 train.py
#: silent variables-of-another-library
export RCCL_DEBUG=INFO
export HCCL_SOCKET_IFNAME=eth0
torchrun --nproc-per-node=8 train.py
#: fires nodes-in-a-file-of-variables localhost-master job.env
NNODES=4
MASTER_ADDR=localhost
MASTER_PORT=29500
#: silent one-node-in-a-file-of-variables job.env
NNODES=1
MASTER_ADDR=localhost
MASTER_PORT=29500
#: fires the-environment-wins-over-nccl-conf misread-value Dockerfile
FROM nvcr.io/nvidia/pytorch:25.01-py3
ENV NCCL_IB_TIMEOUT=18
RUN echo "NCCL_IB_TIMEOUT=22" >> /etc/nccl.conf
#: silent nccl-conf-says-the-same-or-another-name Dockerfile
FROM nvcr.io/nvidia/pytorch:25.01-py3
ENV NCCL_IB_TIMEOUT=22
RUN echo "NCCL_IB_TIMEOUT=22" >> /etc/nccl.conf
RUN echo "NCCL_IB_RETRY_CNT=7" >> /etc/nccl.conf
#: silent variables-of-the-first-node-alone job.env
NNODES=4
NODE_RANK=0
MASTER_ADDR=localhost
MASTER_PORT=29500
