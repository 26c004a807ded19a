import argparse
import os

import torch
from torch.utils.data import Dataset
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments,
                          default_data_collator, set_seed)


class TokenDataset(Dataset):
    """Synthetic corpus, tokenised ahead of time."""

    def __init__(self, size, length=128, vocab=2048, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, vocab, (size, length), generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        ids = self.tokens[i]
        example = {"input_ids": ids, "labels": ids.clone()}
        return example


class SpeedCallback(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "loss" in logs:
            print(f"[speed] step {state.global_step} of {state.max_steps}", flush=True)


def build_corpus(args):
    return TokenDataset(args.train_size), TokenDataset(512, seed=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--train-size", type=int, default=8192)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--output", default="out")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    set_seed(7)

    training_args = TrainingArguments(
        output_dir=args.output,
        max_steps=args.max_steps,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=1,
        learning_rate=5e-4,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=30,
        save_strategy="steps",
        save_steps=30,
        save_total_limit=2,
        bf16=torch.cuda.is_available(),
        dataloader_num_workers=args.workers,
        torch_compile=args.compile,
        ddp_timeout=args.timeout,
        report_to="none",
        disable_tqdm=True,
    )
    train_set, eval_set = build_corpus(args)

    config = GPT2Config(vocab_size=2048, n_positions=1024, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=default_data_collator,
        callbacks=[SpeedCallback()],
    )
    last = None
    if args.resume and os.path.isdir(args.output) and any(n.startswith("checkpoint-") for n in os.listdir(args.output)):
        last = True
    trainer.train(resume_from_checkpoint=last)
    metrics = trainer.evaluate()
    trainer.save_model(os.path.join(args.output, "final"))
    if trainer.is_world_process_zero():
        print(f"final eval loss {metrics['eval_loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
