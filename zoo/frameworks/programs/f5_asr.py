"""CTC phone recogniser on utterances of very different lengths, bucketed batches, DDP."""
import argparse
import os
import queue
import random
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PHONES, MEL = 44, 80


class Corpus(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.seed, self.transcripts = seed, []
        for _ in range(n):
            count = int(5 + 45 * rng.random() ** 2)
            phones = [rng.randrange(1, PHONES)]
            while len(phones) < count:
                phones.append(rng.choice([p for p in range(1, PHONES) if p != phones[-1]]))
            self.transcripts.append(phones)

    def __len__(self):
        return len(self.transcripts)

    def frames(self, i):
        return 12 * len(self.transcripts[i])

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        phones = torch.tensor(self.transcripts[i], dtype=torch.long)
        voice = 0.5 * torch.randn(MEL, generator=g)
        shape = torch.sin(phones[:, None] * torch.linspace(0.1, 3.0, MEL))
        mel = shape.repeat_interleave(12, 0) + voice + 0.3 * torch.randn(12 * len(phones), MEL, generator=g)
        return mel, phones


def collate(rows):
    mels, phones = zip(*rows)
    return (pad_sequence(mels, batch_first=True), torch.tensor([len(m) for m in mels]),
            pad_sequence(phones, batch_first=True), torch.tensor([len(p) for p in phones]))


class FrameBatches:
    """Batches of at most max_frames frames, the lengths in one batch alike, the same number for every rank."""

    def __init__(self, corpus, max_frames, rank, world):
        self.rank, self.world, self.epoch = rank, world, 0
        order = sorted(range(len(corpus)), key=corpus.frames)
        self.batches, batch = [], []
        for i in order:
            if batch and corpus.frames(i) * (len(batch) + 1) > max_frames:
                self.batches.append(batch)
                batch = []
            batch.append(i)
        self.batches.append(batch)

    def __iter__(self):
        batches = list(self.batches)
        random.Random(self.epoch).shuffle(batches)
        while len(batches) % self.world:
            batches.append(batches[0])
        return iter(batches[self.rank::self.world])

    def __len__(self):
        return -(-len(self.batches) // self.world)


class Recogniser(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(MEL, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU())
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True), layers,
                                          enable_nested_tensor=False)
        self.head = nn.Linear(width, PHONES)

    def forward(self, mel, frames):
        x = self.front(mel.transpose(1, 2)).transpose(1, 2)
        length = (frames + 3) // 4
        pad = torch.arange(x.shape[1], device=x.device) >= length[:, None]
        return self.head(self.body(x, src_key_padding_mask=pad)).log_softmax(-1), length


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@torch.no_grad()
def error_rate(model, corpus, rank, world, device):
    model.eval()
    rates = torch.zeros(2, device=device)
    for i in range(rank, len(corpus), world):
        mel, phones = corpus[i]
        logp, _ = model(mel[None].to(device), torch.tensor([len(mel)], device=device))
        guess = [int(p) for p in torch.unique_consecutive(logp[0].argmax(-1)) if p]
        rates += torch.tensor([distance(guess, phones.tolist()) / len(phones), 1.0], device=device)
    dist.all_reduce(rates)
    model.train()
    return (rates[0] / rates[1]).item()


class Journal:
    """Lines go to a file from a thread, so that a slow disk does not delay the training."""

    def __init__(self, path):
        self.lines = queue.Queue(maxsize=6)
        threading.Thread(target=self.write, args=(path,), daemon=True).start()

    def write(self, path):
        with open(path, "a") as file:
            while True:
                file.write(self.lines.get() + "\n")
                file.flush()

    def say(self, text):
        print(text, flush=True)
        self.lines.put(text)


def pick_device():
    """Ranks that share a GPU have to look like several hosts to NCCL."""
    count, local = torch.cuda.device_count(), int(os.environ["LOCAL_RANK"])
    if not count:
        return torch.device("cpu")
    if count < int(os.environ["LOCAL_WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = "n" + os.environ["RANK"]
    torch.cuda.set_device(local % count)
    return torch.device("cuda", local % count)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--utterances", type=int, default=2400)
    p.add_argument("--max-frames", type=int, default=6000)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--valid", type=int, default=48)
    p.add_argument("--timeout", type=int, default=1800)
    args = p.parse_args()
    device = pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    journal = Journal("train.txt") if rank == 0 else None
    train, valid = Corpus(args.utterances, 1), Corpus(args.valid, 2)
    sampler = FrameBatches(train, args.max_frames, rank, world)
    loader = DataLoader(train, batch_sampler=sampler, collate_fn=collate, num_workers=args.workers, persistent_workers=args.workers > 0)
    model = DDP(Recogniser(args.width, args.layers).to(device), device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rate = error_rate(model.module, valid, rank, world, device)
    if rank == 0:
        journal.say(f"{len(train)} utterances in {len(sampler.batches)} batches on {world} ranks, error rate before training {rate:.3f}")
    step, began = 0, time.time()
    for epoch in range(args.epochs):
        sampler.epoch = epoch
        for mel, frames, phones, lengths in loader:
            mel, frames, phones, lengths = (x.to(device, non_blocking=True) for x in (mel, frames, phones, lengths))
            logp, inputs = model(mel, frames)
            loss = nn.functional.ctc_loss(logp.transpose(0, 1), phones, inputs, lengths, zero_infinity=True)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            if step == 1 or step % args.log_every == 0:
                stats = torch.stack([loss.detach(), frames.sum().float()])
                dist.all_reduce(stats)
                if rank == 0:
                    journal.say(f"epoch {epoch} step {step} ctc {stats[0].item() / world:.4f} frames {int(stats[1])} {step / (time.time() - began):.2f} steps/s")
        rate = error_rate(model.module, valid, rank, world, device)
        if rank == 0:
            torch.save(model.module.state_dict(), f"phones-{epoch}.pt")
            journal.say(f"epoch {epoch} done: phone error rate {rate:.3f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
