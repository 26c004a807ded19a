training_args = GRPOConfig(
    learning_rate=5e-6, bf16=True, optim="paged_adamw_8bit",
    per_device_train_batch_size=1, gradient_accumulation_steps=1,
    num_generations=2, max_prompt_length=1024, max_completion_length=4096,
    max_steps=250, logging_steps=1, ds3_gather_for_generation=False,
)
