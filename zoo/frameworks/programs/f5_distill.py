"""Distils a BERT teacher into a small student, with the Trainer and its early stopping."""
import os
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import (BertConfig, BertForMaskedLM, EarlyStoppingCallback, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments)

VOCAB, MASK = 6000, 4


@dataclass
class DistilArguments:
    texts: int = field(default=6000)
    length: int = field(default=128)
    teacher: str = field(default="teacher.pt")
    temperature: float = field(default=2.0)
    patience: int = field(default=8)
    teacher_seconds: float = field(default=0.0)


class Texts(torch.utils.data.Dataset):
    """Walks through a vocabulary, a part of the words is masked."""

    def __init__(self, n, length, seed):
        self.n, self.length, self.seed = n, length, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 50021 + i)
        step = torch.randint(1, 9, (self.length,), generator=g)
        ids = 8 + (torch.randint(0, VOCAB, (), generator=g) + step.cumsum(0)) % (VOCAB - 8)
        hidden = torch.rand(self.length, generator=g) < 0.15
        return {"input_ids": torch.where(hidden, MASK, ids), "labels": torch.where(hidden, ids, -100), "attention_mask": torch.ones_like(ids)}


def bert(width, layers):
    return BertForMaskedLM(BertConfig(vocab_size=VOCAB, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64, intermediate_size=4 * width,
                                      max_position_embeddings=256))


def make_teacher(path, seconds):
    """Stands for the download and conversion of the teacher."""
    if os.path.exists(path):
        return
    torch.manual_seed(1)
    state = bert(384, 6).state_dict()
    until = time.time() + seconds
    while time.time() < until:
        print(f"converting {path}, {until - time.time():.0f} s left", flush=True)
        time.sleep(min(8, max(0.1, until - time.time())))
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


class DistilTrainer(Trainer):
    teacher = None
    temperature = 2.0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        out = model(**inputs)
        with torch.no_grad():
            target = self.teacher(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        t = self.temperature
        soft = nn.functional.kl_div((out.logits / t).log_softmax(-1), (target / t).softmax(-1), reduction="batchmean") * t * t / out.logits.shape[1]
        loss = 0.5 * out.loss + 0.5 * soft
        self.last_loss = loss.detach()
        return (loss, out) if return_outputs else loss


class Averages(TrainerCallback):
    """An exponential average of the student's weights, written when the training ends."""

    def __init__(self, decay=0.99):
        self.decay, self.shadow = decay, None

    def on_step_end(self, args, state, control, model=None, **kwargs):
        weights = [p.detach() for p in model.parameters()]
        if self.shadow is None:
            self.shadow = [w.clone() for w in weights]
        torch._foreach_lerp_(self.shadow, weights, 1 - self.decay)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "loss" in logs:
            print(f"[distil] {state.global_step}/{state.max_steps} loss {float(logs['loss']):.4f}", flush=True)

    def on_train_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            torch.save(self.shadow, os.path.join(args.output_dir, "average.pt"))


def main():
    count = torch.cuda.device_count()
    if 0 < count < int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
        os.environ["NCCL_HOSTID"] = "n" + os.environ["RANK"]
        os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % count)
    opts, args = HfArgumentParser((DistilArguments, TrainingArguments)).parse_args_into_dataclasses()
    with args.main_process_first(local=False, desc="teacher"):
        if args.process_index == 0:
            make_teacher(opts.teacher, opts.teacher_seconds)
    teacher = bert(384, 6)
    teacher.load_state_dict(torch.load(opts.teacher, map_location="cpu"))
    teacher = teacher.to(args.device).eval().requires_grad_(False)
    torch.manual_seed(args.seed)
    student = bert(256, 3)
    train_set, eval_set = Texts(opts.texts, opts.length, 1), Texts(384, opts.length, 2)
    averages = Averages()
    trainer = DistilTrainer(model=student, args=args, train_dataset=train_set, eval_dataset=eval_set, callbacks=[averages, EarlyStoppingCallback(opts.patience)])
    trainer.teacher, trainer.temperature = teacher, opts.temperature
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"[distil] finished, eval loss {metrics['eval_loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
