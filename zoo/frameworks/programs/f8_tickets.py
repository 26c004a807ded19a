"""Answers of a help desk: supervised fine-tuning of a small Llama with the Trainer of Transformers. Letters are tokens; the loss counts for the
answer only. After each evaluation the main process writes sample answers."""
import argparse
import logging
import os
import random
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

PAD, END, OFFSET = 0, 1, 2
THINGS = "printer scanner badge mailbox laptop screen keyboard phone projector account".split()
FAULTS = ["jams", "blinks", "is locked", "is full", "does not start", "is dark", "sticks", "rings twice"]
logger = logging.getLogger("helpdesk")


def encode(text):
    return [OFFSET + ord(c) % 126 for c in text]


def decode(ids):
    return "".join(chr(i - OFFSET) for i in ids if i >= OFFSET)


class Tickets(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = random.Random(self.seed * 1000003 + i)
        thing, room = rng.choice(THINGS), rng.randrange(100, 400)
        question = f"Q: the {thing} in room {room} {rng.choice(FAULTS)}. A:"
        answer = f" we will send someone to room {room} and look at the {thing}."
        return {"question": encode(question), "answer": encode(answer) + [END]}


def collate(tickets):
    longest = max(len(t["question"]) + len(t["answer"]) for t in tickets)
    ids, labels = torch.full((len(tickets), longest), PAD), torch.full((len(tickets), longest), -100)
    for row, ticket in enumerate(tickets):
        q, a = ticket["question"], ticket["answer"]
        ids[row, : len(q) + len(a)] = torch.tensor(q + a)
        labels[row, len(q): len(q) + len(a)] = torch.tensor(a)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


@torch.no_grad()
def answer(model, question, length):
    ids = torch.tensor([encode(question)], device=model.device)
    for _ in range(length):
        nxt = model(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, nxt], 1)
        if nxt.item() == END:
            break
    return decode(ids[0].tolist())


class Desk(TrainerCallback):
    def __init__(self, o):
        self.o, self.rank, self.began = o, int(os.environ.get("RANK", "0")), time.time()

    def on_step_end(self, args, state, control, **kwargs):
        if self.rank == 0 and state.global_step in (1, 5, 10):
            logger.info("step %d done after %.1f s", state.global_step, time.time() - self.began)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.rank == 0 and logs and "loss" in logs:
            logger.info("step %d loss %s lr %s", state.global_step, logs["loss"], logs.get("learning_rate"))

    def on_evaluate(self, args, state, control, metrics=None, model=None, **kwargs):
        if self.rank == 0:
            training = model.training
            model.eval()
            text = answer(model, "Q: the printer in room 217 jams. A:", self.o.sample)
            model.train(training)
            logger.info("step %d eval_loss %.4f sample %r", state.global_step, metrics["eval_loss"], text)

    def on_save(self, args, state, control, **kwargs):
        if self.rank == 0:
            logger.info("step %d checkpoint written", state.global_step)


def main(argv):
    p = argparse.ArgumentParser()
    p.add_argument("--tickets", type=int, default=30000)
    p.add_argument("--max-steps", type=int, default=150)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--eval-steps", type=int, default=50)
    p.add_argument("--sample", type=int, default=24)
    p.add_argument("--out", default="runs")
    p.add_argument("--timeout", type=int, default=1800)
    o = p.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    set_seed(13)
    settings = TrainingArguments(
        output_dir=o.out, max_steps=o.max_steps, per_device_train_batch_size=o.batch, per_device_eval_batch_size=o.batch,
        gradient_accumulation_steps=o.accumulate, learning_rate=5e-4, warmup_steps=10, logging_steps=10, eval_strategy="steps", eval_steps=o.eval_steps,
        save_strategy="steps", save_steps=o.eval_steps, save_total_limit=1, dataloader_num_workers=1, dataloader_drop_last=True,
        remove_unused_columns=False, label_names=["labels"], report_to="none", disable_tqdm=True, ddp_timeout=o.timeout,
        ddp_find_unused_parameters=False, use_cpu=not torch.cuda.is_available())
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=128, hidden_size=o.hidden, intermediate_size=3 * o.hidden, num_hidden_layers=o.layers, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, pad_token_id=PAD, bos_token_id=None, eos_token_id=END))
    trainer = Trainer(model=model, args=settings, train_dataset=Tickets(o.tickets, 1), eval_dataset=Tickets(512, 2), data_collator=collate, callbacks=[Desk(o)])
    trainer.train()
    trainer.save_model(os.path.join(o.out, "final"))
    if trainer.is_world_process_zero():
        logger.info("fine-tuning is over after %d steps", trainer.state.global_step)


if __name__ == "__main__":
    main(sys.argv[1:])
