from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
ds = load_dataset("parquet", data_files="math_lv3.parquet", split="train")
args = GRPOConfig(output_dir="out", logging_steps=10, log_completions=True, num_generations=8,
                  per_device_train_batch_size=8, gradient_checkpointing=True, bf16=True, report_to=["wandb"])
GRPOTrainer("Qwen/Qwen2.5-1.5B-Instruct", reward_funcs=[acc], args=args, train_dataset=ds).train()
