import argparse
from datetime import timedelta

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self, vocab=4096, width=256, tags=17):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True), 2,
                                             enable_nested_tensor=False)
        self.head = nn.Linear(width, tags)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)))


def make_loader(size, batch_size, seed, shuffle):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 4096, (size, 64), generator=g)
    return DataLoader(TensorDataset(ids, ids % 17), batch_size=batch_size, shuffle=shuffle)


def evaluate(accelerator, model, loader):
    model.eval()
    right, total = 0, 0
    for ids, tags in loader:
        with torch.no_grad():
            logits = model(ids)
        predictions, references = accelerator.gather_for_metrics((logits.argmax(-1), tags))
        right += (predictions == references).sum().item()
        total += references.numel()
    model.train()
    return right / max(total, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--train_size", type=int, default=4096)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--output_dir", default="runs")
    args = parser.parse_args()

    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        mixed_precision="bf16" if torch.cuda.is_available() else "no",
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=args.timeout))],
    )
    set_seed(5)
    accelerator.print(accelerator.state, flush=True)
    train_loader = make_loader(args.train_size, args.batch_size, 0, True)
    eval_loader = make_loader(500, args.batch_size, 1, False)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, train_loader, eval_loader)

    done = 0
    for epoch in range(args.epochs):
        for step, (ids, tags) in enumerate(train_loader):
            with accelerator.accumulate(model):
                logits = model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            done += 1
            if done % 20 == 0:
                mean = accelerator.gather(loss.detach().float()).mean().item()
                accelerator.print(f"epoch {epoch} step {done} loss {mean:.4f}", flush=True)
        accuracy = evaluate(accelerator, model, eval_loader)
        accelerator.print(f"epoch {epoch} accuracy {accuracy:.4f}", flush=True)
        accelerator.wait_for_everyone()
        accelerator.save_state(f"{args.output_dir}/epoch_{epoch}")
    accelerator.end_training()
    accelerator.print("training finished", flush=True)


if __name__ == "__main__":
    main()
