python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \
  data.train_batch_size=32 data.max_prompt_length=512 data.max_response_length=1024 \
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \
  actor_rollout_ref.actor.ppo_mini_batch_size=16 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40 \
  actor_rollout_ref.rollout.n=5 actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  trainer.n_gpus_per_node=4 trainer.nnodes=1
