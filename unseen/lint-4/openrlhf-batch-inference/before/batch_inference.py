import jsonlines
import torch.distributed as dist
from tqdm import tqdm


def batch_generate(strategy, model, tokenizer, prompts, args):
    loader = strategy.setup_dataloader(prompts, args.micro_batch_size, True, False, drop_last=False)
    progress = tqdm(loader, disable=not strategy.is_rank_0())
    rows = []
    for batch in progress:
        dist.barrier()
        inputs = tokenizer(batch, return_tensors="pt").to("cuda")
        for _ in range(args.best_of_n):
            output = model.generate(**inputs, max_length=args.max_len)
            rows.extend(tokenizer.batch_decode(output))
    with jsonlines.open(args.output_path + str(strategy.get_rank()), mode="w") as writer:
        writer.write_all(rows)
    dist.barrier()
