"""Clauses of contracts: which words belong to a party, a date, a sum, a duty. Token classification with a BERT that starts from scratch, a plain loop with
Accelerate.

    accelerate launch --num_processes 2 tag_clauses.py
"""
import argparse
import json
import os
import random
import time
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForTokenClassification, get_linear_schedule_with_warmup

logger = get_logger(__name__)
TAGS = ["O", "PARTY", "DATE", "SUM", "DUTY", "LAW", "PLACE"]
PARTIES = "lessor lessee seller buyer agent bank insurer carrier".split()
PLACES = "london geneva lagos osaka lima".split()
DUTIES = "shall-pay shall-deliver shall-insure may-terminate shall-notify".split()
FILLER = "the of and in to party under this agreement which herein upon any such clause with notice written by for no later than".split()
WORDS = ["[pad]", "[cls]", "[sep]", "[unk]"] + PARTIES + PLACES + DUTIES + FILLER + [f"n{i}" for i in range(400)] + [f"art{i}" for i in range(120)]
POOLS = [FILLER, PARTIES, [f"n{i}" for i in range(31)], [f"n{i}" for i in range(100, 400)], DUTIES, [f"art{i}" for i in range(120)], PLACES]
IDS = {w: i for i, w in enumerate(WORDS)}


class Contracts(Dataset):
    """Clauses are made from their number."""

    def __init__(self, first, count, most):
        self.first, self.count, self.most = first, count, most

    def __len__(self):
        return self.count

    def clause(self, number):
        rng = random.Random(number)
        words, tags = [], []
        for kind in rng.choices(range(7), (12, 2, 1, 1, 2, 1, 1), k=rng.randrange(self.most * 3 // 4, self.most - 2)):
            words.append(rng.choice(POOLS[kind]))
            tags.append(kind)
        return words, tags

    def __getitem__(self, i):
        words, tags = self.clause(self.first + i)
        return {"ids": [1] + [IDS.get(w, 3) for w in words] + [2], "tags": [-100] + tags + [-100]}


def collate(rows):
    """Pads to the longest clause of the batch."""
    longest = max(len(row["ids"]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    tags = torch.full((len(rows), longest), -100)
    for k, row in enumerate(rows):
        ids[k, :len(row["ids"])] = torch.tensor(row["ids"])
        tags[k, :len(row["tags"])] = torch.tensor(row["tags"])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": tags}


@torch.no_grad()
def evaluate(model, loader, accelerator):
    """Share of right tags among the words that are not O."""
    model.eval()
    right = total = 0
    for batch in loader:
        guess = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.argmax(-1)
        guess, truth = accelerator.pad_across_processes((guess, batch["labels"]), dim=1, pad_index=-100)
        guess, truth = accelerator.gather_for_metrics((guess, truth))
        named = truth > 0
        right += (guess[named] == truth[named]).sum().item()
        total += named.sum().item()
    model.train()
    return right / max(1, total)


def track(entry):
    """One line of JSON for each entry."""
    with open("metrics.jsonl", "a") as file:
        file.write(json.dumps(entry) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--clauses", type=int, default=400000)
    parser.add_argument("--test-clauses", type=int, default=1500)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--eval-every", type=int, default=250)
    parser.add_argument("--save-every", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1.4)
    parser.add_argument("--timeout", type=int, default=900)
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, mixed_precision="bf16",
                              cpu=not torch.cuda.is_available(), kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=args.timeout))])
    print(f"{accelerator.state.distributed_type} process {accelerator.process_index} of {accelerator.num_processes} on {accelerator.device}", flush=True)
    set_seed(31)
    with accelerator.main_process_first():
        train_set, test_set = Contracts(0, args.clauses, args.length), Contracts(10 ** 8, args.test_clauses, args.length)
    train_loader = DataLoader(train_set, args.batch, shuffle=True, drop_last=True, collate_fn=collate, num_workers=args.workers)
    test_loader = DataLoader(test_set, args.batch, collate_fn=collate)
    config = BertConfig(vocab_size=len(WORDS), hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.hidden // 64, intermediate_size=4 * args.hidden,
                        max_position_embeddings=args.length, num_labels=len(TAGS))
    model = BertForTokenClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    schedule = get_linear_schedule_with_warmup(optimizer, 200, 100000)
    model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(model, optimizer, train_loader, test_loader, schedule)
    if accelerator.is_main_process:
        print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, {len(train_loader)} batches for each process", flush=True)
    began, step, best, over = time.time(), 0, 0.0, False
    running = torch.zeros((), device=accelerator.device)
    while not over:
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            running += loss.detach() / args.accumulate
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % args.log_every == 0:
                mean = accelerator.gather(running.reshape(1)).mean().item() / args.log_every
                running.zero_()
                if accelerator.is_main_process:
                    print(f"step {step} loss {mean:.4f} lr {schedule.get_last_lr()[0]:.2e} {time.time() - began:.1f}s", flush=True)
                    track({"step": step, "loss": mean})
            if step % args.eval_every == 0:
                share = evaluate(model, test_loader, accelerator)
                best = max(best, share)
                if accelerator.is_main_process:
                    print(f"step {step} right {share:.4f} best {best:.4f}", flush=True)
                    track({"step": step, "right": share})
            if step % args.save_every == 0:
                accelerator.wait_for_everyone()
                accelerator.save_state("state")
                if accelerator.is_main_process:
                    print(f"step {step} state saved", flush=True)
            if step % 20 == 0:
                flag = torch.tensor([float(accelerator.is_main_process and time.time() - began > 60 * args.minutes)], device=accelerator.device)
                over = accelerator.reduce(flag, "sum").item() > 0
                if over:
                    break
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("tagger")
        print(f"done, {step} steps", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
