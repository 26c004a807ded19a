export CUDA_DEVICE_MAX_CONNECTIONS=1
srun -N16 --ntasks-per-node=4 python -u pretrain_gpt.py --num-layers 32 --hidden-size 4096 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 64 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --profile --use-pytorch-profiler
