"""Masked residues of proteins, a small BERT with the Trainer of Transformers; one JSON object a line as a log."""
import argparse
import json
import os
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

PAD, MASK, FIRST, LETTERS = 0, 1, 2, 24


class Chains(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng([self.seed, i])
        motif = rng.integers(FIRST, LETTERS, 9)
        residues = np.resize(motif, int(rng.integers(40, 120)))
        return {"residues": residues, "number": i}


def mask_residues(chains):
    longest = max(len(c["residues"]) for c in chains)
    ids = np.full((len(chains), longest), PAD)
    for row, chain in zip(ids, chains):
        row[: len(chain["residues"])] = chain["residues"]
    hidden = (np.random.default_rng(chains[0]["number"]).random(ids.shape) < 0.15) & (ids != PAD)
    return {"input_ids": torch.tensor(np.where(hidden, MASK, ids)), "attention_mask": torch.tensor(ids != PAD).long(),
            "labels": torch.tensor(np.where(hidden, ids, -100))}


class JsonLines(TrainerCallback):
    def __init__(self):
        self.began = time.time()

    def put(self, event, **fields):
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps({"t": round(time.time() - self.began, 2), "event": event, **fields}), flush=True)

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.put("log", step=state.global_step, **{k: round(v, 5) if isinstance(v, float) else v for k, v in (logs or {}).items()})

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            self.put("first step")

    def on_save(self, args, state, control, **kwargs):
        self.put("saved", step=state.global_step)


def recovery(prediction):
    """Share of the hidden residues that are found again."""
    found, wanted = prediction.predictions, prediction.label_ids
    hidden = wanted != -100
    return {"recovery": float((found == wanted)[hidden].mean())}


def options(argv):
    p = argparse.ArgumentParser()
    p.add_argument("--chains", type=int, default=20000)
    p.add_argument("--max-steps", type=int, default=160)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--eval-steps", type=int, default=40)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--folder", default="runs")
    p.add_argument("--timeout", type=int, default=1800)
    return p.parse_args(argv)


if __name__ == "__main__":
    o = options(sys.argv[1:])
    set_seed(29)
    settings = TrainingArguments(
        output_dir=o.folder, max_steps=o.max_steps, per_device_train_batch_size=o.batch, per_device_eval_batch_size=o.batch, learning_rate=4e-4,
        lr_scheduler_type="cosine", warmup_steps=20, logging_steps=5, logging_first_step=True, eval_strategy="steps", eval_steps=o.eval_steps,
        save_strategy="steps", save_steps=o.eval_steps, save_total_limit=1, dataloader_num_workers=o.workers, dataloader_drop_last=True,
        remove_unused_columns=False, label_names=["labels"], report_to="none", disable_tqdm=True, ddp_timeout=o.timeout,
        ddp_find_unused_parameters=False, use_cpu=not torch.cuda.is_available())
    network = BertForMaskedLM(BertConfig(vocab_size=LETTERS, hidden_size=o.hidden, num_hidden_layers=o.layers, num_attention_heads=4,
                                         intermediate_size=4 * o.hidden, max_position_embeddings=128, pad_token_id=PAD))
    trainer = Trainer(model=network, args=settings, train_dataset=Chains(o.chains, 1), eval_dataset=Chains(320, 2), data_collator=mask_residues,
                      compute_metrics=recovery, preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), callbacks=[JsonLines()])
    trainer.train()
    last = trainer.evaluate()
    trainer.save_model(os.path.join(o.folder, "last"))
    if trainer.is_world_process_zero():
        print(json.dumps({"event": "end", "recovery": last.get("eval_recovery")}), flush=True)
