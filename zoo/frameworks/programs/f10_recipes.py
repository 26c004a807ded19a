"""A small GPT-2 that writes recipes, with transformers.Trainer.

accelerate launch --num_processes 2 run_clm.py --output_dir out
"""
import json
import logging
import os
import random
import sys
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments, set_seed

logger = logging.getLogger(__name__)

VERBS = "chop boil fry whisk fold bake simmer season drain serve knead rest grate melt".split()
THINGS = "onion flour butter egg salt rice bean tomato leek thyme cream potato lentil apple yeast oil water".split()


@dataclass
class ModelArguments:
    n_layer: int = field(default=8)
    n_embd: int = field(default=640)
    n_head: int = field(default=10)


@dataclass
class DataArguments:
    block_size: int = field(default=256)
    recipes: int = field(default=60000)
    minutes: float = field(default=1.2, metadata={"help": "stop after this many minutes"})


class Vocabulary:
    def __init__(self):
        self.ids = {w: i + 2 for i, w in enumerate(VERBS + THINGS + [str(n) for n in range(100)])}

    def __len__(self):
        return 2 + len(self.ids)

    def __call__(self, text):
        return [self.ids[w] for w in text.split()] + [1]


class Recipes(Dataset):
    """Recipes are written on the fly: the same number gives the same recipe."""

    def __init__(self, first, count, block_size, vocabulary):
        self.first, self.count, self.block_size, self.vocabulary = first, count, block_size, vocabulary

    def __len__(self):
        return self.count

    def text(self, n):
        rng = random.Random(n)
        pantry = rng.sample(THINGS, 5)
        steps = (f"{rng.choice(VERBS)} {rng.randrange(100)} {rng.choice(pantry)}" for _ in range(rng.randrange(30, 80)))
        return " ".join(steps)

    def __getitem__(self, i):
        ids = self.vocabulary(self.text(self.first + i))[: self.block_size]
        return {"input_ids": ids}


class Collator:
    def __init__(self, block_size):
        self.block_size = block_size

    def __call__(self, features):
        ids = torch.zeros(len(features), self.block_size, dtype=torch.long)
        for row, f in zip(ids, features):
            row[: len(f["input_ids"])] = torch.tensor(f["input_ids"])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


class Budget(TrainerCallback):
    """Ends the training after some minutes; the first process decides."""

    def __init__(self, minutes):
        self.end = None
        self.seconds = 60 * minutes

    def on_train_begin(self, args, state, control, **kwargs):
        self.end = time.time() + self.seconds

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 25 == 0:
            over = torch.tensor([float(time.time() > self.end)], device=args.device)
            dist.broadcast(over, 0)
            control.should_training_stop = bool(over.item())
            control.should_save = control.should_save or control.should_training_stop


class Notes(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        pass

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and "loss" in (logs or {}):
            logger.info("step %d loss %s", state.global_step, logs["loss"])

    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            with open(os.path.join(args.output_dir, "notes.jsonl"), "a") as file:
                file.write(json.dumps({"step": state.global_step, "time": time.time()}) + "\n")
            logger.info("checkpoint of step %d", state.global_step)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    given = {"output_dir": "out", "per_device_train_batch_size": 24, "learning_rate": 3e-4, "max_steps": 1000000, "logging_steps": 20, "eval_strategy": "steps",
             "eval_steps": 250, "save_steps": 250, "save_total_limit": 2, "report_to": [], "bf16": torch.cuda.is_available(), "use_cpu": not torch.cuda.is_available(),
             "warmup_steps": 100, "disable_tqdm": False, "dataloader_num_workers": 0}
    words = [w for k, v in given.items() if f"--{k}" not in sys.argv for w in ([f"--{k}", str(v)] if v != [] else [f"--{k}", "none"])]
    model_args, data_args, args = parser.parse_args_into_dataclasses(words + sys.argv[1:])
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
    logger.warning("Process rank: %d, device: %s, distributed training: %s, 16-bits training: %s", args.process_index, args.device, args.world_size > 1, args.bf16)
    set_seed(args.seed)
    vocabulary = Vocabulary()
    with args.main_process_first(desc="recipes"):
        train = Recipes(0, data_args.recipes, data_args.block_size, vocabulary)
        test = Recipes(10 ** 7, 960, data_args.block_size, vocabulary)
    config = GPT2Config(vocab_size=len(vocabulary), n_positions=data_args.block_size, n_embd=model_args.n_embd, n_layer=model_args.n_layer, n_head=model_args.n_head,
                        bos_token_id=1, eos_token_id=1, use_cache=False)
    model = GPT2LMHeadModel(config)
    logger.info("Training new model from scratch - Total size=%.1fM params", sum(p.numel() for p in model.parameters()) / 2 ** 20)
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=test, data_collator=Collator(data_args.block_size),
                      callbacks=[Budget(data_args.minutes), Notes()])
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    logger.info("process %d ends", args.process_index)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
