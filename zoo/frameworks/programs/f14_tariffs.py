#!/usr/bin/env python3
"""Customs: which chapter of the tariff does a description of goods belong to? A small BERT, with the Trainer of Hugging Face.

    torchrun --nproc-per-node 2 classify_goods.py --out declared
"""
import argparse
import json
import os
import random
import time

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

CHAPTERS, LONGEST = 97, 64
SYLLABLES = ["al", "bor", "ce", "dun", "es", "fra", "gol", "hem", "is", "jut", "kar", "lo", "men", "nik", "or", "pla", "qui", "ras", "sil", "tex", "um", "ver", "wol", "xy", "zin"]


def spell(rng):
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(3, 6)))


def write_book(path, seed):
    """The words of each chapter, and those that all chapters have."""
    rng = random.Random(seed)
    book = {"chapters": [[spell(rng) for _ in range(30)] for _ in range(CHAPTERS)], "common": [spell(rng) for _ in range(600)]}
    with open(path + ".new", "w") as file:
        json.dump(book, file)
    os.replace(path + ".new", path)


def open_book(path, seed, args):
    with args.main_process_first(desc="writes the book"):
        if not os.path.exists(path):
            write_book(path, seed)
        with open(path) as file:
            return json.load(file)


class Goods(Dataset):
    def __init__(self, book, count, first):
        self.book, self.count, self.first = book, count, first

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = random.Random(self.first + i)
        chapter = rng.randrange(CHAPTERS)
        own, common = self.book["chapters"][chapter], self.book["common"]
        words = [rng.choice(own if rng.random() < 0.25 else common) for _ in range(rng.randrange(40, LONGEST))]
        return {"text": " ".join(words), "label": chapter}


class Clerk:
    """Makes batches of descriptions. Number 0 fills up, 1 is for unknown words."""

    def __init__(self, book):
        words = sorted({word for chapter in book["chapters"] for word in chapter} | set(book["common"]))
        self.number = {word: i + 2 for i, word in enumerate(words)}
        self.calls = 0

    def __call__(self, goods):
        self.calls += 1
        texts = [one["text"].split() for one in goods]
        ids = torch.zeros(len(goods), LONGEST, dtype=torch.long)
        there = torch.zeros(len(goods), LONGEST, dtype=torch.long)
        for row, words in enumerate(texts):
            ids[row, :len(words)] = torch.tensor([self.number.get(word, 1) for word in words])
            there[row, :len(words)] = 1
        labels = torch.tensor([one["label"] for one in goods])
        return {"input_ids": ids, "attention_mask": there, "labels": labels}


def right(result):
    return {"right": float((result.predictions.argmax(-1) == result.label_ids).mean())}


class Counter(TrainerCallback):
    """Lines for the log; ends the training by the clock."""

    def __init__(self, minutes):
        self.minutes, self.began, self.trainer = minutes, time.time(), None

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.time()
        print(f"rank {args.process_index} of {args.world_size} begins on {args.device}", flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 20 == 0:
            late = torch.tensor([float(time.time() - self.began > 60 * self.minutes)], device=args.device)
            dist.all_reduce(late, op=dist.ReduceOp.MAX)
            if late.item() > 0:
                control.should_training_stop = True
        return control

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.4f} after {time.time() - self.began:.1f} s", flush=True)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if state.is_world_process_zero and metrics:
            print(f"step {state.global_step} right {metrics.get('eval_right', 0):.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(dim=384, heads=6, depth=6, batch=96, parts=2, goods=400000, held=1536, eval_every=200, save_every=300, log_every=5).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--out", default="declared")
    p.add_argument("--rate", type=float, default=4e-4)
    p.add_argument("--minutes", type=float, default=2.1)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    args = TrainingArguments(
        output_dir=o.out, per_device_train_batch_size=o.batch, per_device_eval_batch_size=o.batch, gradient_accumulation_steps=o.parts, max_steps=20000,
        learning_rate=o.rate, warmup_steps=100, logging_steps=o.log_every, eval_strategy="steps", eval_steps=o.eval_every, save_strategy="steps",
        save_steps=o.save_every, save_total_limit=1, report_to="none", disable_tqdm=True, remove_unused_columns=False, ddp_timeout=o.timeout,
        ddp_find_unused_parameters=False, seed=3)
    book = open_book("book.json", 12, args)
    clerk = Clerk(book)
    config = BertConfig(vocab_size=len(clerk.number) + 2, hidden_size=o.dim, num_hidden_layers=o.depth, num_attention_heads=o.heads, intermediate_size=4 * o.dim,
                        max_position_embeddings=LONGEST, num_labels=CHAPTERS, pad_token_id=0)
    counter = Counter(o.minutes)
    trainer = Trainer(model=BertForSequenceClassification(config), args=args, data_collator=clerk, train_dataset=Goods(book, o.goods, 0),
                      eval_dataset=Goods(book, o.held, 10 ** 9), compute_metrics=right, callbacks=[counter])
    counter.trainer = trainer
    trainer.train()
    last = trainer.evaluate()
    print(f"rank {args.process_index}: end, {trainer.state.global_step} steps, right {last['eval_right']:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
