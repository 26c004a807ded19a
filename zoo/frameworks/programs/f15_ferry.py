#!/usr/bin/env python3
"""Finds ports, vessels and times in the notices of a ferry company: a small DistilBERT that marks words, with the Trainer of Hugging Face.

    torchrun --nproc-per-node 2 mark_notices.py --out marked
"""
import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForTokenClassification, Trainer, TrainerCallback, TrainingArguments

KINDS = ["other", "port", "vessel", "time", "reason"]
VOCABULARY, LONGEST = 6000, 64


class Notices(Dataset):
    """Numbers of words and their kinds. A word's kind follows from it and from the word before it."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.words = rng.integers(2, VOCABULARY, (count, LONGEST))
        before = np.roll(self.words, 1, 1)
        self.kinds = np.where(self.words % 7 < 4, 0, (self.words + before) % len(KINDS))
        self.lengths = rng.integers(LONGEST // 2, LONGEST + 1, count)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return {"words": self.words[i], "kinds": self.kinds[i], "length": int(self.lengths[i])}


class Purser:
    """Makes batches. Number 0 fills up."""

    def __init__(self):
        self.calls = 0

    def __call__(self, notices):
        self.calls += 1
        words, kinds = (np.stack([one[name] for one in notices]) for name in ("words", "kinds"))
        there = np.arange(LONGEST) < np.array([one["length"] for one in notices])[:, None]
        words, kinds = np.where(there, words, 0), np.where(there, kinds, -100)
        return {"input_ids": torch.from_numpy(words), "attention_mask": torch.from_numpy(there.astype(np.int64)), "labels": torch.from_numpy(kinds)}


def marked(result):
    kinds, truth = result.predictions.argmax(-1), result.label_ids
    return {"marked": float((kinds == truth)[truth != -100].mean())}


class Bridge(TrainerCallback):
    """Lines for the log, and the clock that ends the training."""

    def __init__(self, minutes):
        self.minutes, self.trainer = minutes, None
        self.began = self.tick = time.time()
        self.pace = 0.1

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = self.tick = time.time()
        print(f"rank {args.process_index} of {args.world_size} casts off on {args.device}", flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        now = time.time()
        self.pace += 0.1 * (min(now - self.tick, 1.0) - self.pace)
        self.tick = now
        if state.global_step % 20 == 0:
            late = torch.tensor([float(now - self.began > 60 * self.minutes)], device=args.device)
            dist.all_reduce(late, op=dist.ReduceOp.MAX)
            control.should_training_stop = late.item() > 0
        return control

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.4f} {self.pace:.3f} s a step", flush=True)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if state.is_world_process_zero and metrics:
            print(f"step {state.global_step} marked {metrics.get('eval_marked', 0):.4f}", flush=True)

    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print(f"step {state.global_step} saved", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=256, heads=4, depth=4, batch=160, notices=60000, held=1111, eval_every=150, save_every=250, log_every=5).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--out", default="marked")
    p.add_argument("--rate", type=float, default=5e-4)
    p.add_argument("--minutes", type=float, default=1.8)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    args = TrainingArguments(
        output_dir=o.out, per_device_train_batch_size=o.batch, per_device_eval_batch_size=o.batch, max_steps=50000, learning_rate=o.rate, warmup_steps=50,
        logging_steps=o.log_every, eval_strategy="steps", eval_steps=o.eval_every, save_strategy="steps", save_steps=o.save_every, save_total_limit=1,
        report_to="none", disable_tqdm=True, remove_unused_columns=False, ddp_timeout=o.timeout, ddp_find_unused_parameters=False, seed=6)
    config = DistilBertConfig(vocab_size=VOCABULARY, dim=o.dim, n_heads=o.heads, n_layers=o.depth, hidden_dim=4 * o.dim, max_position_embeddings=LONGEST,
                              num_labels=len(KINDS), pad_token_id=0)
    bridge, purser = Bridge(o.minutes), Purser()
    trainer = Trainer(model=DistilBertForTokenClassification(config), args=args, data_collator=purser, train_dataset=Notices(o.notices, 1),
                      eval_dataset=Notices(o.held, 2), compute_metrics=marked, callbacks=[bridge])
    bridge.trainer = trainer
    trainer.train()
    last = trainer.evaluate()
    print(f"rank {args.process_index}: end, {trainer.state.global_step} steps, marked {last['eval_marked']:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
