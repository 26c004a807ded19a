import argparse

import torch
from accelerate import Accelerator
from tqdm.auto import tqdm

from nli_data import build_loaders, build_model


def evaluate(accelerator, model, loader):
    model.eval()
    right = total = 0
    for batch in loader:
        with torch.no_grad():
            guess = model(**batch).logits.argmax(-1)
        guess, gold = accelerator.gather_for_metrics((guess, batch["labels"]))
        right += (guess == gold).sum().item()
        total += gold.numel()
    model.train()
    return right / max(total, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--eval-every", type=int, default=200)
    args = parser.parse_args()

    accelerator = Accelerator(mixed_precision="fp16")
    model, optimizer, schedule = build_model()
    train, dev = build_loaders()
    model, optimizer, train, dev, schedule = accelerator.prepare(
        model, optimizer, train, dev, schedule
    )
    total = args.epochs * len(train)
    bar = tqdm(range(total), total=total, disable=not accelerator.is_main_process)
    done = 0
    model.train()
    for epoch in range(args.epochs):
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            bar.update(1)
            done += 1
            if done % args.eval_every == 0:
                score = evaluate(accelerator, model, dev)
                accelerator.print(f"epoch {epoch} step {done}: accuracy {score:.4f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        "nli-out", is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )


if __name__ == "__main__":
    main()
