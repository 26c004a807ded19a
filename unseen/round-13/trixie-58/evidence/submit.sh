#SBATCH --nodes 2
#SBATCH --ntasks 2
#SBATCH --time=0-12:00:00
#SBATCH --gres=gpu:4
for node in $HOSTLIST; do
    srun --ntasks 1 --nodes 1 --nodelist $node \
      python -m torch.distributed.launch --nproc_per_node=4 --nnodes=2 --node_rank=$RANK --master_addr=$MASTER --master_port=6015 worker.py &
    RANK=$((RANK+1))
done
wait
