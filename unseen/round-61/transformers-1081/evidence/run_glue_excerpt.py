def load_and_cache_examples(args, task, tokenizer, evaluate=False):
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()  # Make sure only the first process in distributed training process the dataset, and the others will use the cache
    ...
    if args.local_rank == 0:
        torch.distributed.barrier()  # Make sure only the first process in distributed training process the dataset, and the others will use the cache

# main()
    # Evaluation
    results = {}
    if args.do_eval and args.local_rank in [-1, 0]:
        ...
            result = evaluate(args, model, tokenizer, prefix=global_step)   # -> load_and_cache_examples(args, task, tokenizer, evaluate=True)
    return results
