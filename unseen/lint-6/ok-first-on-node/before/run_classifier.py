import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from zero_first import first_on_node


def load_features(args, tokenizer, local_rank):
    cached = Path(args.scratch, f"train_{args.max_length}.pt")
    with first_on_node(local_rank):
        if cached.exists() and not args.overwrite:
            features = torch.load(cached)
        else:
            lines = Path(args.data, "train.tsv").read_text().splitlines()
            texts, labels = zip(*(line.rsplit("\t", 1) for line in lines))
            features = dict(tokenizer(list(texts), truncation=True, padding="max_length",
                                      max_length=args.max_length, return_tensors="pt"))
            features["labels"] = torch.tensor([int(x) for x in labels])
            if local_rank in (-1, 0):
                torch.save(features, cached)
    names = ("input_ids", "attention_mask", "labels")
    return TensorDataset(*(features[name] for name in names)), names


def main(args):
    local_rank = int(os.environ.get("LOCAL_RANK", "-1"))
    if local_rank != -1:
        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl")
    device = torch.device("cuda", max(local_rank, 0))

    with first_on_node(local_rank):
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForSequenceClassification.from_pretrained(args.model)
    dataset, names = load_features(args, tokenizer, local_rank)

    model.to(device)
    sampler = None
    if local_rank != -1:
        sampler = DistributedSampler(dataset)
        model = DistributedDataParallel(model, device_ids=[local_rank])
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler,
                        shuffle=sampler is None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(**{k: v.to(device) for k, v in zip(names, batch)}).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bert-base-cased")
    parser.add_argument("--data", required=True)
    parser.add_argument("--scratch", default="/tmp")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--overwrite", action="store_true")
    main(parser.parse_args())
