python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \
  data.train_files=mixed_text_geo3k.parquet \
  actor_rollout_ref.model.path=Qwen/Qwen3-VL-8B-Instruct \
  actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
  trainer.n_gpus_per_node=4 trainer.nnodes=1
