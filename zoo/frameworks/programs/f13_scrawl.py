# Reads handwritten lines: convolutions, two recurrent layers, CTC. With Hugging Face Accelerate:
#   accelerate launch --multi_gpu --num_processes 2 read_lines.py --lines 60000
import argparse
import json
import os
import string
import time
from datetime import timedelta

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader, Dataset

ALPHABET = string.ascii_letters + string.digits + ".,;:!?'-"
HEIGHT, WIDTH, LONGEST = 48, 512, 24


class Lines(Dataset):
    """A line of text in blocky letters, with noise. Number 0 is CTC's blank, letters begin with 1."""

    def __init__(self, count, first=0):
        self.count, self.first = count, first
        blocks = np.random.default_rng(1).random((len(ALPHABET), 12, 4)) > 0.5
        self.glyphs = np.kron(blocks, np.ones((1, 3, 4))).astype(np.float32)

    def __len__(self):
        return self.count

    def text(self, rng):
        return rng.integers(1, len(ALPHABET) + 1, int(rng.integers(8, LONGEST + 1)))

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        text = self.text(rng)
        image = rng.standard_normal((HEIGHT, WIDTH), dtype=np.float32) * np.float32(0.3)
        x = int(rng.integers(4, 20))
        for letter in text:
            y = int(rng.integers(2, 10))
            image[y:y + 36, x:x + 16] += self.glyphs[letter - 1]
            x += int(rng.integers(15, 20))
        label = np.zeros(LONGEST, np.int64)
        label[:len(text)] = text
        return {"image": image[None], "label": label, "length": len(text)}


def convolve(a, b, pool=None):
    layers = [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *([nn.MaxPool2d(pool)] if pool else []))


class Reader(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        w = width
        self.see = nn.Sequential(convolve(1, w), convolve(w, w, 2), convolve(w, 2 * w), convolve(2 * w, 2 * w, 2), convolve(2 * w, 4 * w, (2, 1)),
                                 convolve(4 * w, 4 * w, (2, 1)))
        self.narrow = nn.Linear(4 * w * 3, hidden)
        self.read = nn.LSTM(hidden, hidden, 2, batch_first=True, bidirectional=True)
        self.letters = nn.Linear(2 * hidden, len(ALPHABET) + 1)

    def forward(self, image):
        x = self.see(image)
        x = self.narrow(x.permute(0, 3, 1, 2).flatten(2))
        return self.letters(self.read(x)[0])


def ctc(logits, label, length):
    chances = F.log_softmax(logits.float(), -1).transpose(0, 1)
    columns = torch.full((logits.shape[0],), logits.shape[1], dtype=torch.long)
    return F.ctc_loss(chances, label, columns, length, zero_infinity=True)


def best_path(logits):
    """The most likely letter of each column."""
    return logits.argmax(-1)


def collapse(path):
    out, last = [], 0
    for letter in path:
        if letter != last and letter:
            out.append(letter)
        last = letter
    return out


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def evaluate(accelerator, net, loader):
    """Wrong letters in a hundred."""
    net.eval()
    wrong = total = 0
    for batch in loader:
        with torch.no_grad():
            path = best_path(net(batch["image"]))
        path, label, length = accelerator.gather_for_metrics((path, batch["label"], batch["length"]))
        if accelerator.is_main_process:
            for one, truth, n in zip(path.tolist(), label.tolist(), length.tolist()):
                wrong += edits(collapse(one), truth[:n])
                total += n
    net.train()
    return 100 * wrong / max(1, total)


class Log:
    def __init__(self, accelerator):
        self.accelerator, self.began = accelerator, time.time()

    def __call__(self, text, **values):
        if self.accelerator.is_main_process:
            shown = " ".join(f"{name} {value:.4f}" for name, value in values.items())
            print(f"{text} {shown} ({time.time() - self.began:.1f} s)", flush=True)
            with open("log.jsonl", "a") as file:
                file.write(json.dumps({"text": text, **values}) + "\n")


def training(o, accelerator):
    set_seed(o.seed)
    net = Reader(o.width, o.hidden)
    optimizer = torch.optim.AdamW(net.parameters(), o.lr, weight_decay=1e-4)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 400))
    options = dict(num_workers=o.workers, pin_memory=torch.cuda.is_available(), persistent_workers=o.workers > 0)
    train = DataLoader(Lines(o.lines), o.batch, shuffle=True, drop_last=True, **options)
    val = DataLoader(Lines(o.val_lines, 10 ** 8), o.batch, **options)
    net, optimizer, train, val, warm = accelerator.prepare(net, optimizer, train, val, warm)
    log, step = Log(accelerator), 0
    print(f"process {accelerator.process_index} of {accelerator.num_processes} on {accelerator.device}, {len(train)} batches", flush=True)
    while True:
        for batch in train:
            step += 1
            logits = net(batch["image"])
            loss = ctc(logits, batch["label"], batch["length"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            warm.step()
            optimizer.zero_grad()
            if step % o.log_every == 0:
                mean = accelerator.reduce(loss.detach(), "mean")
                log(f"step {step}", loss=mean.item())
            if step % o.val_every == 0:
                log(f"step {step} evaluation", wrong=evaluate(accelerator, net, val))
            if step % o.save_every == 0:
                accelerator.save_state(os.path.join(o.out, "state"))
                log(f"step {step} saved")
            if step % 20 == 0:
                late = torch.tensor(float(time.time() - log.began > 60 * o.minutes), device=accelerator.device)
                if accelerator.reduce(late, "sum").item() > 0:
                    return step


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(width=64, hidden=512, batch=48, lines=60000, val_lines=960, workers=3, seed=19, log_every=5, val_every=200, save_every=300).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--out", default="out")
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--minutes", type=float, default=2.2)
    p.add_argument("--timeout", type=int, default=900)
    o = p.parse_args()
    accelerator = Accelerator(mixed_precision="bf16" if torch.cuda.is_available() else "no",
                              kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=o.timeout))])
    steps = training(o, accelerator)
    print(f"process {accelerator.process_index}: end, {steps} steps", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
