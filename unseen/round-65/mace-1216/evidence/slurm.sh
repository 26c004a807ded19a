#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8
export MASTER_ADDR=$(hostname) MASTER_PORT=33333
srun python -u mace_run_train --name=cu_oxide --train_file=train.h5 --valid_file=valid.h5 --statistics_file=stats.json \
  --model=MACE --num_channels=128 --max_L=1 --r_max=5.0 --batch_size=16 --valid_batch_size=32 \
  --max_num_epochs=600 --patience=50 --eval_interval=1 --scheduler_patience=20 --ema --amsgrad --distributed --device=cuda
