"""ringleader: finds the rank that stalls, breaks or poisons a multi-GPU training job.

``ringleader.torch.guard`` watches a running job for silent corruption, ``ringleader.torch.setup`` makes its next failure
diagnosable. Nothing is imported here: torch is needed for ``ringleader.torch`` alone.
"""
