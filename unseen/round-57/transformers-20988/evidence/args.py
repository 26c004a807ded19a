args = TrainingArguments(
    output_dir="/mnt/pvc/out",          # PVC, mounted on both workers
    num_train_epochs=3,
    evaluation_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    save_on_each_node=False,
    save_total_limit=1,
)
