# both nodes: 8x H800, four CX7 400G: mlx5_0 mlx5_1 mlx5_6 mlx5_7
export NVSHMEM_IB_ENABLE_IBGDA=1
export NVSHMEM_DEBUG=INFO
export MASTER_ADDR=10.2.0.57 WORLD_SIZE=2 RANK=$1
export NCCL_SOCKET_IFNAME=bond0
export NVSHMEM_ENABLE_NIC_PE_MAPPING=1
export NVSHMEM_HCA_PE_MAPPING="mlx5_0:1:2,mlx5_1:1:2,mlx5_6:1:2,mlx5_7:1:2"
python3 test_internode.py
