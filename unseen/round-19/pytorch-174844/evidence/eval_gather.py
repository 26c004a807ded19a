def gather_scores(scores):
    """scores: what this rank collected since the last call (tensor on the GPU)"""
    out = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(out, scores)
    print(f"Gather returned (rank {dist.get_rank()})", flush=True)
    dist.barrier()
    return torch.cat([o.flatten() for o in out])
