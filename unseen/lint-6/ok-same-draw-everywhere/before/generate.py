import argparse
import time
from contextlib import nullcontext

import torch

from model import Transformer
from tokenizer import load_tokenizer
from tp import maybe_init, shard


def sample(logits, temperature, top_k):
    logits = logits[0, -1] / max(temperature, 1e-5)
    pivot = torch.topk(logits, top_k).values[-1]
    probs = torch.where(logits < pivot, -float("inf"), logits).softmax(-1)
    return torch.argmax(probs / torch.empty_like(probs).exponential_(1), keepdim=True)


@torch.no_grad()
def generate(model, prompt, args):
    tokens = [sample(model(prompt[None], 0), args.temperature, args.top_k)]
    for position in range(len(prompt), len(prompt) + args.max_new_tokens - 1):
        logits = model(tokens[-1][None], position)
        tokens.append(sample(logits, args.temperature, args.top_k))
    return torch.cat(tokens)


def main(args):
    rank = maybe_init()
    quiet = rank is not None and rank != 0
    say = (lambda *a: None) if quiet else print
    model = Transformer.from_checkpoint(args.checkpoint)
    if rank is not None:
        shard(model)
    model = model.to(device="cuda", dtype=torch.bfloat16).eval()
    tokenizer = load_tokenizer(args.checkpoint)
    prompt = torch.tensor(tokenizer.encode(args.prompt), device="cuda")

    torch.manual_seed(1234)
    for index in range(args.samples):
        profiled = args.profile and index == args.samples - 1 and not quiet
        context = torch.profiler.profile() if profiled else nullcontext()
        start = time.perf_counter()
        with context as profile:
            tokens = generate(model, prompt, args)
        torch.cuda.synchronize()
        if profiled:
            profile.export_chrome_trace(f"{args.profile}.json")
        say(tokenizer.decode(tokens.tolist()))
        say(f"{len(tokens) / (time.perf_counter() - start):.1f} tokens/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--max-new-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=200)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--profile")
    main(parser.parse_args())
