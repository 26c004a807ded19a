# bergson/magic/cli.py, end of worker()
    if global_rank == 0:
        save_magic_scores(score_path, scores, per_token=cfg.per_token)
        print(f"Saved aggregate MAGIC scores to {score_path}")

# bergson/score/score_writer.py
class MemmapSequenceScoreWriter(ScoreWriter):
    def __init__(self, path, num_items, num_scores, *, dtype=torch.float32, overwrite=False):
        rank = dist.get_rank() if dist.is_initialized() else 0
        if rank == 0 and (overwrite or not scores_file_path.exists()):
            print(f"Creating new scores file: {scores_file_path}")
            ...
        if dist.is_initialized():
            dist.barrier()
        self.scores = np.memmap(...)
