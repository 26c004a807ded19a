"""A small T5 that writes headlines, Seq2SeqTrainer with generation in its evaluation."""
import json
import logging
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from transformers import (Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration, TrainerCallback)

log = logging.getLogger("headlines")
VOCAB = 4000
CONFIG = {"articles": 8192, "article_length": 120, "headline_length": 20, "d_model": 512, "layers": 5, "batch": 24, "steps": 160, "eval_steps": 80,
          "eval_articles": 96, "lr": 3e-4, "ddp_timeout": 1800, "log_steps": 10, "cpu": False, "save": True}


def build_blocks(folder, rank, world, conf):
    """Every process encodes its own part of the articles into blocks of 256."""
    os.makedirs(folder, exist_ok=True)
    for block in range(rank, conf["articles"] // 256, world):
        rng = np.random.default_rng(block)
        articles = rng.integers(10, VOCAB, (256, conf["article_length"]), dtype=np.int64)
        headlines = np.sort(articles[:, :: conf["article_length"] // conf["headline_length"]], axis=1)[:, : conf["headline_length"]]
        np.savez(f"{folder}/block-{block:03d}.npz", articles=articles, headlines=headlines)
    log.info("rank %d has encoded its blocks", rank)


class Articles(torch.utils.data.Dataset):
    def __init__(self, folder, blocks):
        self.folder, self.blocks, self.cache = folder, blocks, {}

    def __len__(self):
        return 256 * len(self.blocks)

    def block(self, number):
        if number not in self.cache:
            with np.load(f"{self.folder}/block-{number:03d}.npz") as data:
                self.cache[number] = data["articles"], data["headlines"]
        return self.cache[number]

    def __getitem__(self, i):
        articles, headlines = self.block(self.blocks[i // 256])
        return {"input_ids": articles[i % 256], "labels": headlines[i % 256]}


def collate(rows):
    ids = torch.from_numpy(np.stack([row["input_ids"] for row in rows]))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.from_numpy(np.stack([row["labels"] for row in rows]))}


def overlap(prediction):
    guesses, wanted = prediction.predictions, prediction.label_ids
    hits = [len(set(g.tolist()) & set(w.tolist())) / len(w) for g, w in zip(guesses, wanted, strict=True)]
    return {"overlap": float(np.mean(hits))}


class Report(TrainerCallback):
    def __init__(self):
        self.began = time.time()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and "loss" in logs:
            log.info("step %d/%d loss %.4f (%.1f s)", state.global_step, state.max_steps, float(logs["loss"]), time.time() - self.began)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if state.is_world_process_zero:
            log.info("step %d overlap %.4f eval loss %.4f", state.global_step, metrics["eval_overlap"], metrics["eval_loss"])

    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            log.info("step %d saved to %s", state.global_step, args.output_dir)


def main():
    conf = {**CONFIG, **(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})}
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    args = Seq2SeqTrainingArguments(
        output_dir="runs/t5", per_device_train_batch_size=conf["batch"], per_device_eval_batch_size=conf["batch"], max_steps=conf["steps"],
        learning_rate=conf["lr"], logging_steps=conf["log_steps"], eval_strategy="steps", eval_steps=conf["eval_steps"],
        save_strategy="steps" if conf["save"] else "no", save_steps=conf["eval_steps"], save_total_limit=1, predict_with_generate=True,
        generation_max_length=conf["headline_length"] + 1, bf16=not conf["cpu"], use_cpu=conf["cpu"], ddp_timeout=conf["ddp_timeout"], report_to="none",
        disable_tqdm=True, ddp_find_unused_parameters=False, remove_unused_columns=False, seed=5)
    rank, world = args.process_index, args.world_size
    build_blocks("blocks", rank, world, conf)
    if world > 1:
        dist.barrier()
    blocks = list(range(conf["articles"] // 256))
    train_set = Articles("blocks", blocks[:-1])
    eval_set = torch.utils.data.Subset(Articles("blocks", blocks[-1:]), range(conf["eval_articles"]))
    torch.manual_seed(3)
    model = T5ForConditionalGeneration(T5Config(vocab_size=VOCAB, d_model=conf["d_model"], d_kv=64, d_ff=4 * conf["d_model"], num_layers=conf["layers"],
                                                num_heads=conf["d_model"] // 64, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))
    log.info("rank %d of %d: %d articles, %.1f M parameters", rank, world, len(train_set), model.num_parameters() / 1e6)
    trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=train_set, eval_dataset=eval_set, data_collator=collate, compute_metrics=overlap,
                             callbacks=[Report()])
    trainer.train()
    log.info("rank %d is done", rank)


if __name__ == "__main__":
    main()
