srun --mpi=pmix --partition=gpu-od --gpus=8 --cpus-per-gpu=4 \
     --container-image=registry.lab/llm/neox:81 \
     /opt/nccl-tests/build/all_reduce_perf -b 1M -e 4G -f 2 -g 1
