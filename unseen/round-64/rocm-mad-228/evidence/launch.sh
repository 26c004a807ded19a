# inside the job, one task per node
COORD_HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
export JAX_COORDINATOR_IP=$(getent ahostsv4 $COORD_HOST | awk '{print $1; exit}')
export JAX_COORDINATOR_PORT=29500 NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID
echo "$(hostname -s) node_rank=$NODE_RANK coordinator=$JAX_COORDINATOR_IP:$JAX_COORDINATOR_PORT"
python3 -m MaxText.train MaxText/configs/base.yml run_name=llama2_7b_2n hardware=gpu_multiprocess dcn_data_parallelism=2 ici_fsdp_parallelism=8
