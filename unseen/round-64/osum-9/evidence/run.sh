# finetune, 1 node, 2 x A800
train_data=data/hotline/shards.list        # wc -l -> 15 (each zip: 1000 utterances, the last one 431)
torchrun --nnodes=1 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:29401 wenet/bin/train.py \
  --train_engine deepspeed --deepspeed_config conf/ds_stage2.json --deepspeed.save_states "model+optimizer" \
  --data_type shard_full_data --train_data $train_data --cv_data data/hotline_dev/shards.list \
  --config conf/config_ft.yaml --model_dir exp/hotline_ft --num_workers 4 --prefetch 10
