"""Fine-tunes a small encoder on review sentiment."""
import os
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import (BertConfig, BertForSequenceClassification, EarlyStoppingCallback, HfArgumentParser, Trainer,
                          TrainerCallback, TrainingArguments)


@dataclass
class DataArguments:
    reviews: int = field(default=6000)
    held_out: int = field(default=400)
    length: int = field(default=96)


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count, length, seed):
        rng = np.random.default_rng(seed)
        self.ids = rng.integers(5, 3000, size=(count, length))
        self.stars = rng.integers(0, 5, size=count)
        self.ids[:, 1] = 5 + self.stars

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, index):
        ids = torch.from_numpy(self.ids[index])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(self.stars[index])}


def compute_metrics(prediction):
    guess = prediction.predictions.argmax(-1)
    return {"accuracy": float((guess == prediction.label_ids).mean()), "mae": float(np.abs(guess - prediction.label_ids).mean())}


class Progress(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 25 == 0 and state.is_world_process_zero:
            print(f"[finetune] {state.global_step}/{state.max_steps}", flush=True)


class ReviewTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = outputs.loss
        return (loss, outputs) if return_outputs else loss


def main():
    data, args = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    train_set = Reviews(data.reviews, data.length, 0)
    held_out = Reviews(data.held_out, data.length, 1)
    model = BertForSequenceClassification(BertConfig(vocab_size=3000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                                                     intermediate_size=768, num_labels=5))
    trainer = ReviewTrainer(model=model, args=args, train_dataset=train_set, eval_dataset=held_out, compute_metrics=compute_metrics,
                            callbacks=[Progress(), EarlyStoppingCallback(early_stopping_patience=6)])
    trainer.train()
    scores = trainer.evaluate()
    trainer.save_model()
    trainer.log_metrics("eval", scores)


if __name__ == "__main__":
    main()
