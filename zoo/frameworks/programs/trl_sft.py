import argparse
import os

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from tokenizers import Tokenizer, models, pre_tokenizers
from trl import SFTConfig, SFTTrainer

WORDS = [f"w{i}" for i in range(500)]


def build_tokenizer():
    vocab = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def build_dataset(size, seed):
    g = torch.Generator().manual_seed(seed)
    rows = [" ".join(WORDS[j] for j in torch.randint(0, 500, (24,), generator=g).tolist()) for _ in range(size)]
    return Dataset.from_dict({"text": rows})


class SampleCallback(TrainerCallback):
    """Prints a sample now and then."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % 25 == 0 and state.is_world_process_zero:
            inner = model.module if hasattr(model, "module") else model
            ids = self.tokenizer("w1 w2 w3", return_tensors="pt").input_ids.to(inner.device)
            out = inner.generate(ids, max_new_tokens=8, do_sample=True, pad_token_id=0)
            print("sample:", self.tokenizer.decode(out[0]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=80)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--output", default="sft-out")
    args = parser.parse_args()
    tokenizer = build_tokenizer()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=256, n_layer=4, n_head=4, n_positions=256,
                                       bos_token_id=1, eos_token_id=1, pad_token_id=0))
    config = SFTConfig(output_dir=args.output, max_steps=args.max_steps, per_device_train_batch_size=8, logging_steps=10,
                       eval_strategy="steps", eval_steps=40, save_strategy="no", report_to="none", disable_tqdm=True,
                       bf16=torch.cuda.is_available(), ddp_timeout=args.timeout, max_length=64)
    trainer = SFTTrainer(model=model, args=config, train_dataset=build_dataset(4000, 0), eval_dataset=build_dataset(200, 1),
                         processing_class=tokenizer, callbacks=[SampleCallback(tokenizer)])
    trainer.train()
    if trainer.is_world_process_zero():
        print("finished", trainer.state.global_step, flush=True)


if __name__ == "__main__":
    main()
