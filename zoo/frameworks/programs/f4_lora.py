"""LoRA adapters for a small Llama: dialogues of two turns, with the Trainer."""
import os
import random
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

PAD, BOS, EOS, USER, BOT = 0, 1, 2, 3, 4


@dataclass
class TuneArguments:
    dialogues: int = field(default=6000)
    words: int = field(default=40)
    hidden: int = field(default=768)
    layers: int = field(default=10)
    rank: int = field(default=64)
    cache: str = field(default="dialogues.npz")


def encode(seed, words):
    rng = random.Random(seed)
    question = [rng.randrange(8, 7000) for _ in range(rng.randrange(words, 2 * words))]
    answer = [t + 900 for t in question[::2]] + [EOS]
    head = [BOS, USER, *question, BOT]
    return head + answer, len(head)


def prepare(path, n, words):
    """Encodes all dialogues once; later runs and the other processes read the file."""
    if os.path.exists(path):
        print(f"using {path}", flush=True)
        return
    ids, cuts, ends = [], [], []
    for i in range(n):
        text, cut = encode(i, words)
        ids.extend(text)
        cuts.append(cut)
        ends.append(len(ids))
        if (i + 1) % 20000 == 0:
            print(f"encoded {i + 1} dialogues", flush=True)
    np.savez(path, ids=np.array(ids, np.int64), cuts=np.array(cuts), ends=np.array(ends))


class Dialogues(torch.utils.data.Dataset):
    def __init__(self, path, first, last):
        with np.load(path) as data:
            self.ids, self.cuts, self.ends = data["ids"], data["cuts"], data["ends"]
        self.first, self.last = first, last

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, i):
        i += self.first
        begin = self.ends[i - 1] if i else 0
        ids = torch.from_numpy(self.ids[begin:self.ends[i]].copy())
        labels = ids.clone()
        labels[:self.cuts[i]] = -100
        return {"input_ids": ids, "labels": labels}


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), longest), PAD)
    labels = torch.full((len(rows), longest), -100)
    for n, row in enumerate(rows):
        ids[n, :len(row["input_ids"])] = row["input_ids"]
        labels[n, :len(row["labels"])] = row["labels"]
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long()}


class AdapterNorm(TrainerCallback):
    def on_log(self, args, state, control, logs=None, model=None, **kwargs):
        if state.is_world_process_zero and state.global_step % 50 == 0:
            norm = sum(p.detach().float().norm().item() ** 2 for n, p in model.named_parameters() if "lora_B" in n) ** 0.5
            print(f"adapter norm after {state.global_step} steps: {norm:.4f}", flush=True)


def main():
    opts, args = HfArgumentParser((TuneArguments, TrainingArguments)).parse_args_into_dataclasses()
    args.remove_unused_columns = False
    with args.main_process_first(desc="encoding"):
        prepare(opts.cache, opts.dialogues, opts.words)
    held_out = opts.dialogues // 20
    train_set = Dialogues(opts.cache, 0, opts.dialogues - held_out)
    eval_set = Dialogues(opts.cache, opts.dialogues - held_out, opts.dialogues)
    torch.manual_seed(11)
    base = LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size=opts.hidden, intermediate_size=opts.hidden * 8 // 3, num_hidden_layers=opts.layers,
                                        num_attention_heads=opts.hidden // 64, num_key_value_heads=opts.hidden // 128, max_position_embeddings=512,
                                        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, use_cache=False))
    model = get_peft_model(base, LoraConfig(r=opts.rank, lora_alpha=2 * opts.rank, lora_dropout=0.05, task_type="CAUSAL_LM",
                                            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]))
    if args.process_index == 0:
        model.print_trainable_parameters()
        sys.stdout.flush()
    trainer = Trainer(model=model, args=args, train_dataset=train_set, eval_dataset=eval_set, data_collator=collate, callbacks=[AdapterNorm()])
    result = trainer.train()
    trainer.save_model(os.path.join(args.output_dir, "final"))
    if trainer.is_world_process_zero():
        print(f"tuned: {result.metrics['train_samples_per_second']:.1f} samples/s", flush=True)


if __name__ == "__main__":
    main()
