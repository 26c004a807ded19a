if training_args.local_rank in (-1, 0):
    wandb.init(project="sft-7b", name=training_args.run_name)
    wandb.watch(model, log="all", log_freq=100)

trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=train_ds,
    data_collator=collator,
)
trainer.train()
