recipe = llm.llama31_8b.finetune_recipe(dir="/results/lora", name="lora8b", num_nodes=2, num_gpus_per_node=1, peft_scheme="lora")
recipe.trainer.strategy.tensor_model_parallel_size = 1
recipe.trainer.strategy.context_parallel_size = 1
recipe.trainer.val_check_interval = 50
recipe.trainer.max_steps = 400
recipe.trainer.log_every_n_steps = 1
recipe.data.micro_batch_size = 1
recipe.data.global_batch_size = 8
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
run.run(recipe, direct=True)
