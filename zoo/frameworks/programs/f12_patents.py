"""Titles for patents: T5 from scratch learns to write the title from the abstract. Trainer of transformers.

  torchrun --nproc_per_node 2 write_titles.py --output_dir titles
"""
import argparse
import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import T5Config, T5ForConditionalGeneration, Trainer, TrainerCallback, TrainingArguments, set_seed

THINGS = "valve rotor hinge sensor pump lens antenna battery brake nozzle filter blade cable clamp seal spring gear turbine membrane coil".split()
USES = "cooling cutting lifting mixing sealing sorting printing welding drying milking steering charging weighing sawing".split()
KINDS = "folding adjustable wireless hydraulic self-locking portable modular sterile foldable optical magnetic".split()
GLUE = "a the of in which is said and comprising wherein at least one first second connected to by for means thereof invention according".split()
VOCABULARY = ["<pad>", "</s>", "<unk>"] + sorted(set(THINGS + USES + KINDS + GLUE)) + [f"w{i}" for i in range(1500)]
INDEX = {word: i for i, word in enumerate(VOCABULARY)}


class Patents(Dataset):
    """An abstract and its title, made from their number."""

    def __init__(self, first, count, words):
        self.first, self.count, self.words = first, count, words

    def __len__(self):
        return self.count

    def text(self, number):
        rng = random.Random(number)
        kind, thing, use = rng.choice(KINDS), rng.choice(THINGS), rng.choice(USES)
        rare = rng.randrange(self.words // 4, self.words // 3)
        abstract = rng.choices(GLUE, k=self.words * 2 // 3) + [f"w{int(rng.paretovariate(0.6)) % 1500}" for _ in range(rare)]
        rng.shuffle(abstract)
        for word in (kind, thing, use, thing):
            abstract.insert(rng.randrange(len(abstract)), word)
        return abstract, [kind, thing, "for", use]

    def __getitem__(self, i):
        abstract, title = self.text(self.first + i)
        return {"input_ids": [INDEX.get(w, 2) for w in abstract], "labels": [INDEX[w] for w in title] + [1]}


class Collate:
    def __init__(self, length):
        self.length = length

    def __call__(self, rows):
        ids = torch.zeros(len(rows), self.length, dtype=torch.long)
        labels = torch.full((len(rows), 8), -100)
        for k, row in enumerate(rows):
            words = row["input_ids"][:self.length]
            ids[k, :len(words)] = torch.tensor(words)
            labels[k, :len(row["labels"])] = torch.tensor(row["labels"])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


class TitleTrainer(Trainer):
    """Rare words weigh more."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        weight = torch.ones(len(VOCABULARY))
        weight[[INDEX[w] for w in GLUE]] = 0.5
        self.weight = weight.to(self.args.device)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], decoder_input_ids=self.shifted(labels))
        logits = outputs.logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), weight=self.weight, ignore_index=-100)
        return (loss, {"loss": loss, "logits": logits}) if return_outputs else loss

    @staticmethod
    def shifted(labels):
        start = labels.new_zeros(len(labels), 1)
        return torch.cat([start, labels[:, :-1].clamp(min=0)], 1)


class Watch(TrainerCallback):
    """Progress for people, and the end by the clock, which all ranks decide together."""

    def __init__(self, minutes):
        self.minutes, self.began = minutes, None

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.time()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 20 == 0:
            over = torch.tensor(float(time.time() - self.began > 60 * self.minutes), device=args.device)
            dist.all_reduce(over, dist.ReduceOp.MAX)
            if over.item():
                control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and "loss" in logs:
            loss, rate = float(logs["loss"]), float(logs["learning_rate"])
            print(f"step {state.global_step} loss {loss:.4f} lr {rate:.2e} {time.time() - self.began:.1f} s", flush=True)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if state.is_world_process_zero:
            shown = {name: round(float(value), 4) for name, value in metrics.items() if name.startswith("eval_")}
            print(f"step {state.global_step} evaluation {shown}", flush=True)


def guesses(logits, labels):
    return logits.argmax(-1)


def right_titles(prediction):
    guess, labels = prediction.predictions, prediction.label_ids
    there = labels != -100
    return {"words": ((guess == labels) & there).sum() / max(1, there.sum()), "titles": float(np.mean(((guess == labels) | ~there).all(1)))}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--output_dir", default="titles")
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--words", type=int, default=320, help="of an abstract")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--patents", type=int, default=200000)
    p.add_argument("--eval_patents", type=int, default=640)
    p.add_argument("--learning_rate", type=float, default=3e-4)
    p.add_argument("--logging_steps", type=int, default=5)
    p.add_argument("--eval_steps", type=int, default=200)
    p.add_argument("--save_steps", type=int, default=300)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--minutes", type=float, default=1.4)
    p.add_argument("--ddp_timeout", type=int, default=900)
    given = p.parse_args()
    set_seed(41)
    args = TrainingArguments(
        output_dir=given.output_dir, per_device_train_batch_size=given.batch, per_device_eval_batch_size=given.batch, seed=41,
        learning_rate=given.learning_rate, warmup_steps=100, max_steps=100000, logging_steps=given.logging_steps, logging_nan_inf_filter=False,
        eval_strategy="steps", eval_steps=given.eval_steps, save_steps=given.save_steps, save_total_limit=1, bf16=torch.cuda.is_available(),
        dataloader_num_workers=given.workers, remove_unused_columns=False, report_to="none", disable_tqdm=True, ddp_find_unused_parameters=False,
        ddp_timeout=given.ddp_timeout, use_cpu=not torch.cuda.is_available())
    config = T5Config(vocab_size=len(VOCABULARY), d_model=given.dim, d_kv=64, d_ff=4 * given.dim, num_layers=given.layers,
                      num_decoder_layers=given.layers // 2, num_heads=given.dim // 64, dropout_rate=0.1, decoder_start_token_id=0, pad_token_id=0,
                      eos_token_id=1, use_cache=False)
    model = T5ForConditionalGeneration(config)
    trainer = TitleTrainer(model=model, args=args, data_collator=Collate(given.words), train_dataset=Patents(0, given.patents, given.words),
                           eval_dataset=Patents(10 ** 9, given.eval_patents, given.words), compute_metrics=right_titles,
                           preprocess_logits_for_metrics=guesses, callbacks=[Watch(given.minutes)])
    print(f"rank {args.process_index} of {args.world_size} on {args.device}: {model.num_parameters() / 1e6:.1f}M parameters", flush=True)
    trainer.train()
    trainer.save_model(os.path.join(given.output_dir, "last"))
    print(f"rank {args.process_index}: {trainer.state.global_step} steps", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
