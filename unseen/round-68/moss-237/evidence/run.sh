num_machines=1
num_processes=$((num_machines * 8))
machine_rank=0

nohup accelerate launch \
	--config_file ./configs/sft.yaml \
	--num_processes $num_processes \
	--num_machines $num_machines \
	--machine_rank $machine_rank \
	--deepspeed_multinode_launcher standard finetune_moss.py \
	--model_name_or_path /data/models/moss-moon-003-base \
	--data_dir ./sft_data \
	--output_dir ./ckpts/moss-sft \
	--log_dir ./train_logs/moss-sft \
	--n_epochs 2 --train_bsz_per_gpu 4 --eval_bsz_per_gpu 4 \
	--learning_rate 0.000015 --eval_step 200 --save_step 2000 > sft.log 2>&1 &
