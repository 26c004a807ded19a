import copy
import os
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback, set_seed
from trl import DPOConfig, DPOTrainer

NOUNS = [f"noun{i}" for i in range(300)]
GOOD, BAD = [f"kind{i}" for i in range(50)], [f"rude{i}" for i in range(50)]


def tokenizer_of_words():
    words = ["[PAD]", "[BOS]", "[EOS]", "[UNK]", *NOUNS, *GOOD, *BAD]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]", unk_token="[UNK]")


def preferences(count, seed):
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        rows.append({"prompt": " ".join(draw.choices(NOUNS, k=10)) + " ", "chosen": " ".join(draw.choices(GOOD, k=8)),
                     "rejected": " ".join(draw.choices(BAD, k=8))})
    return Dataset.from_list(rows)


class Margins(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "rewards/margins" in logs:
            print(f"margin at {state.global_step}: {float(logs['rewards/margins']):.4f}", flush=True)


def main():
    set_seed(21)
    steps = int(os.environ.get("MAX_STEPS", "60"))
    words = tokenizer_of_words()
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                                         bos_token_id=1, eos_token_id=2, pad_token_id=0, max_position_embeddings=128))
    args = DPOConfig(output_dir="dpo-out", max_steps=steps, per_device_train_batch_size=8, gradient_accumulation_steps=2, logging_steps=5,
                     eval_strategy="steps", eval_steps=30, save_steps=30, save_total_limit=1, learning_rate=1e-4, max_length=64, report_to="none",
                     disable_tqdm=True, bf16=torch.cuda.is_available(), ddp_timeout=int(os.environ.get("DDP_TIMEOUT", "1800")))
    trainer = DPOTrainer(model=model, ref_model=copy.deepcopy(model), args=args, train_dataset=preferences(1600, 0), eval_dataset=preferences(64, 1), processing_class=words,
                         callbacks=[Margins()])
    trainer.train()
    trainer.save_model("policy")
    if trainer.is_world_process_zero():
        print("policy saved", flush=True)


if __name__ == "__main__":
    main()
